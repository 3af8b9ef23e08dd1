package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"carryover/convcache/redisstore"
)

func TestRedisURL_Parse(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://localhost":                           "[localhost:6379]",
		"REDIS://10.0.0.1:7000/":                      "[10.0.0.1:7000]",
		"redis://[::1]/3":                             "[[::1]:6379] db 3",
		"redis://[fd00::1]:7000/15":                   "[[fd00::1]:7000] db 15",
		"redis://:p%40ss@r":                           `[r:6379] password "p@ss"`,
		"redis://p@ss@r":                              `[r:6379] user "p@ss"`,
		"rediss://u:a:b%2F%25+c@r/0":                  `[r:6379] user "u" password "a:b/%+c" secure`,
		"unix:///run/redis.sock":                      "[/run/redis.sock] socket",
		"unix://u:p@/run/r.s?db=1":                    `[/run/r.s] user "u" password "p" db 1 socket`,
		"redis+sentinel://s1/m":                       `[s1:26379] sentinel "m"`,
		"rediss+sentinel://u:p@s1:1,[::1],s3/m%20y/2": `[s1:1 [::1]:26379 s3:26379] user "u" password "p" db 2 sentinel "m y" secure`,
		"redis+cluster://c1,c2:6380":                  "[c1:6379 c2:6380] cluster",
		"rediss+cluster://:p@c1/":                     `[c1:6379] password "p" cluster secure`,
	} {
		got, wants := RedisURL(raw).parse()
		said := fmt.Sprint(got.Addresses)
		for _, part := range []struct {
			is   bool
			text string
		}{
			{got.Username != "", fmt.Sprintf(" user %q", got.Username)}, {got.Password != "", fmt.Sprintf(" password %q", got.Password)},
			{got.DB != 0, fmt.Sprintf(" db %d", got.DB)}, {got.Topology == redisstore.Sentinel || got.Master != "", fmt.Sprintf(" sentinel %q", got.Master)},
			{got.Topology == redisstore.Cluster, " cluster"}, {got.secure, " secure"}, {got.socket, " socket"},
		} {
			if part.is {
				said += part.text
			}
		}
		if len(wants) > 0 || said != want {
			t.Errorf("%s\n got %s, refused with %q\nwant %s", raw, said, wants, want)
		}
	}
}

// Every URL holds hunter2 where a hasty writer puts a password, and no answer repeats it.
func TestRedisURL_Refused(t *testing.T) {
	for raw, want := range map[string]string{
		"hunter2":                          "redis://, rediss://",
		"hunter2@redis.example":            "redis://, rediss://",
		"http://u:hunter2@r":               "redis://, rediss://",
		"redis+sentinels://u:hunter2@r":    "redis://, rediss://",
		"unix+cluster://u:hunter2@r":       "redis://, rediss://",
		"redis://u:hunter2 @r":             "redis://, rediss://",
		"redis://u:hunter2ü@r":             "redis://, rediss://",
		"redis://":                         "redis://, rediss://",
		"redis://u:hunter2@":               "a host in every place",
		"redis://:hunter2":                 "a host in every place",
		"redis://hunter2:0":                "a host in every place",
		"redis://hunter2:":                 "a host in every place",
		"redis://hunter2:65536":            "a host in every place",
		"redis://::1:6379":                 "a host in every place",
		"redis://[::1":                     "a host in every place",
		"redis://[::1]6379":                "a host in every place",
		"redis://[127.0.0.1]":              "a host in every place",
		"redis://[redis]":                  "a host in every place",
		"redis+cluster://c1,,hunter2":      "a host in every place",
		"redis+cluster://c1,":              "a host in every place",
		"redis://r1,hunter2":               "one host",
		"redis://r/hunter2":                "the number of a database",
		"redis://r/-1":                     "the number of a database",
		"redis://r/0/1":                    "the number of a database",
		"redis+sentinel://s1/m/hunter2":    "the number of a database",
		"redis+sentinel://u:hunter2@s1":    "the name under which",
		"redis+sentinel://u:hunter2@s1//1": "the name under which",
		"redis+cluster://u:hunter2@c1/0":   "no database",
		"redis://r?password=hunter2":       "no query",
		"redis://r?":                       "no query",
		"redis+cluster://c1?addr=c2":       "no query",
		"redis://u:hun/ter2@r":             "a user and a password in which",
		"redis://u:hun?ter2@r":             "a user and a password in which",
		"redis://u:hun#ter2@r":             "a user and a password in which",
		"redis://u:hunter2%@r":             "a user and a password in which",
		"unix://hunter2/run/r.sock":        "a path behind unix://",
		"unix://u:hunter2@":                "a path behind unix://",
		"unix:///":                         "a path behind unix://",
		"unix:///r.sock?password=hunter2":  "no query but db",
		"unix:///r.sock?db=hunter2":        "no query but db",
		"unix:///r.sock?db=1&db=2":         "no query but db",
	} {
		_, wants := RedisURL(raw).parse()
		answer := strings.Join(wants, "; ")
		if !strings.HasPrefix(answer, want) || strings.Contains(answer, "hunter2") {
			t.Errorf("%s is refused with %q, want %q", raw, answer, want)
		}
		_, err := loadSources(t, []string{"--secret-file", "secret-file.txt", "--redis-url", raw})
		if err == nil || strings.Contains(err.Error(), "hun") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is refused with %v, want %q without the URL", raw, err, want)
		}
	}
}

func TestRedis_ExposedIsRefused(t *testing.T) {
	const secret, password = "--secret-file secret-file.txt ", "--redis-password-file redis-password.txt "
	for _, tc := range []struct {
		args    string
		refused bool
	}{
		{"--redis-url redis://localhost", false},
		{"--redis-url redis://127.9.9.9", false},
		{"--redis-url redis://[::1]", false},
		{"--redis-url redis://[::ffff:127.0.0.1]", false},
		{"--redis-url unix:///run/redis.sock", false},
		{"--redis-url rediss://:p@redis.example", false},
		{password + "--redis-url rediss://redis.example", false},
		{password + "--redis-url rediss+sentinel://redis.example/m", false},
		{password + "--redis-url rediss+cluster://redis.example", false},
		{"--redis-insecure --redis-url redis://redis.example", false},
		{"--redis-url redis://redis.example", true},
		{"--redis-url redis://10.0.0.1", true},
		{"--redis-url redis://0.0.0.0", true},
		{"--redis-url redis://localhost.example", true},
		{"--redis-url rediss://redis.example", true},
		{password + "--redis-url redis://redis.example", true},
		{"--redis-url redis+sentinel://127.0.0.1/m", true}, // the master can be anywhere
		{"--redis-url redis+cluster://127.0.0.1", true},
	} {
		_, err := loadSources(t, strings.Fields(secret+tc.args))
		if refused := err != nil; refused != tc.refused {
			t.Errorf("%s: got %v, want refused %t", tc.args, err, tc.refused)
		}
		if err != nil && (!strings.Contains(err.Error(), "or redis.insecure") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v does not say what to do", tc.args, err)
		}
	}
}

// TestRedis_FilesReachTheStore covers what is not in the settings themselves.
func TestRedis_FilesReachTheStore(t *testing.T) {
	cfg, err := loadSources(t, []string{"--config", "accepted-full.yaml"})
	must(t, err)
	refuse := func(key, value, want string) { t.Errorf("%s: %s: want %s", key, value, want) }
	got := cfg.Redis.Connection(refuse)
	if got.TLS == nil || got.TLS.RootCAs == nil || len(got.TLS.Certificates) != 1 || got.TLS.MinVersion != 0x303 || got.TLS.InsecureSkipVerify {
		t.Errorf("TLS %+v, want at least TLS 1.2 with the CA and the certificate", got.TLS)
	}
	got.TLS = nil
	want := redisstore.Config{
		Topology: redisstore.Sentinel, Addresses: []string{"s1:26379", "s2:26380", "[fd00::3]:26379"}, Master: "tickets", DB: 2,
		Password: "hunter2", SentinelPassword: "hunter2", Prefix: "blue:kv",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("connection\n got %+v\nwant %+v", got, want)
	}
	if cfg, err = loadSources(t, []string{"--config", "accepted-redis.yaml"}); err != nil {
		t.Fatal(err)
	}
	if got := cfg.Redis.Connection(refuse); got.DB != 1 || got.TLS != nil {
		t.Errorf("connection %+v, want one without TLS, to database 1", got)
	}
}
