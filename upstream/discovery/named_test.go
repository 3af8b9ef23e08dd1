package discovery

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/request"
	"carryover/upstream"
)

func TestNamed_AnInstanceIsSetWhenAdmitReturns(t *testing.T) {
	named := NewNamed(patterns(t, "10.0.0.0/8:8000"))
	w := watch(t, named)
	w.want("")
	name, err := named.Admit("10.0.0.1:8000")
	if err != nil || len(w.lists) != 1 {
		t.Fatalf("Admit = %q, %v with %d lists set, want one", name, err, len(w.lists))
	}
	want := upstream.Instance{Name: name, BaseURL: "http://10.0.0.1:8000", Role: upstream.RolePrefill}
	if all := <-w.lists; len(all) != 1 || all[0] != want {
		t.Errorf("set(%+v), want %+v", all, want)
	}
	if _, err := named.Admit(name); err != nil {
		t.Error(err)
	}
	if _, err := named.Admit("10.0.0.2:8001"); err == nil || strings.Contains(err.Error(), "10.0.0.0") {
		t.Errorf("Admit = %v, want an error that tells no pattern", err)
	}
	w.quiet()
}

func TestNamed_DropsWhatNoRequestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := NewNamed(patterns(t, "*.local:80"))
		play(t, "watch; want ; admit idle.local:80; now idle.local:80; admit busy.local:80; now idle.local:80 busy.local:80;"+
			strings.Repeat("pass 1m; admit busy.local:80;", 9)+ // nine minutes
			"quiet; pass 2m; now busy.local:80; pass 12m; now ; admit idle.local:80; now idle.local:80",
			named, nil, map[string]func(string){"pass": passes(t), "admit": func(name string) { admit(t, named, name) }})
	})
}

func TestNamed_TheOneUnusedForLongestGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := NewNamed(patterns(t, "*.local:80"))
		w := watch(t, named)
		for n := range MaxNamed {
			<-time.After(time.Millisecond)
			admit(t, named, fmt.Sprintf("p-%d.local:80", n))
		}
		<-time.After(time.Millisecond)
		admit(t, named, "p-0.local:80")
		synctest.Wait()
		for len(w.lists) > 1 {
			<-w.lists
		}
		<-w.lists
		admit(t, named, "more.local:80")
		if len(w.lists) != 1 {
			t.Fatalf("set was called %d times, want once", len(w.lists))
		}
		all := <-w.lists
		if got := " " + names(all) + " "; len(all) != MaxNamed || strings.Contains(got, " p-1.local:80 ") ||
			!strings.Contains(got, " p-0.local:80 ") || !strings.HasSuffix(got, " more.local:80 ") {
			t.Errorf("%d instances, %s", len(all), got)
		}
	})
}

func TestNamed_ManyAtOnce(t *testing.T) {
	named := NewNamed(patterns(t, "*.local:80"))
	w := watch(t, named)
	w.want("")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range 40 {
				admit(t, named, fmt.Sprintf("p-%d.local:80", n))
			}
		})
	}
	all.Wait()
	var last []upstream.Instance
	for range 40 {
		last = <-w.lists
	}
	w.quiet()
	if len(last) != 40 {
		t.Errorf("%d instances, want 40", len(last))
	}
}

func TestNamed_OneThatIsKnownCostsNoAllocation(t *testing.T) {
	named := NewNamed(patterns(t, "10.0.0.0/8:8000"))
	admit(t, named, "10.0.0.1:8000")
	if n := testing.AllocsPerRun(100, func() { admit(t, named, "10.0.0.1:8000") }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

var _ request.Prefillers = (*Named)(nil)

func admit(t *testing.T, named *Named, hostPort string) {
	if name, err := named.Admit(hostPort); err != nil || name != hostPort {
		t.Errorf("Admit(%s) = %q, %v", hostPort, name, err)
	}
}

func patterns(tb testing.TB, texts ...string) (list []Pattern) {
	tb.Helper()
	for _, text := range texts {
		p, err := ParsePattern(text)
		must(tb, err)
		list = append(list, p)
	}
	return list
}

func TestPattern_PermitsHostAndPort(t *testing.T) {
	for _, tc := range []struct{ pattern, permitted, refused string }{
		{"10.0.0.0/8:8000-8100", "10.0.0.1:8000 10.255.255.254:8100 10.1.2.3:8050", "11.0.0.1:8000 10.0.0.1:7999 10.0.0.1:8101 a:8000 10.0.0.1.example:8000"},
		{"10.0.0.1:8000", "10.0.0.1:8000", "10.0.0.2:8000 10.0.0.1:80"},
		{"[fd00::]/8:8000", "[fd00::1]:8000 [FDAB:0:0::1]:8000", "[fe00::1]:8000 [fd00::1]:8001 10.0.0.1:8000"},
		{"[fd00::1]:8000", "[fd00::1]:8000 [fd00:0::0:1]:8000", "[fd00::2]:8000"},
		{"[::1]:8000", "[::1]:8000", "127.0.0.1:8000 localhost:8000"},
		{"0.0.0.0/0:1-65535", "10.0.0.1:8000 127.0.0.1:1", "[::1]:8000 a:8000"},
		{"[::]/0:8000", "[fd00::1]:8000", "10.0.0.1:8000"},
		{"prefill-0:8000", "prefill-0:8000 PREFILL-0:8000", "prefill-1:8000 a.prefill-0:8000 prefill-0.a:8000 prefill-0:80"},
		{"Prefill_0:8000", "prefill_0:8000", "prefill_1:8000"},
		{"*.svc.cluster.local:8000", "a.svc.cluster.local:8000 a.b.SVC.cluster.local:8000", "svc.cluster.local:8000 asvc.cluster.local:8000 a.svc.cluster.local.evil:8000 .svc.cluster.local:8000"},
		{"*.1a:8000", "x.1a:8000", "10.0.0.1:8000"},
	} {
		admit := NewNamed(patterns(t, tc.pattern))
		for _, hostPort := range strings.Fields(tc.permitted) {
			if name, err := admit.Admit(hostPort); err != nil {
				t.Errorf("%s: Admit(%s) = %v, want it permitted", tc.pattern, hostPort, err)
			} else if again, err := admit.Admit(name); again != name || err != nil {
				t.Errorf("%s: Admit(%s) = %q, %v the second time", tc.pattern, name, again, err)
			}
		}
		for _, hostPort := range strings.Fields(tc.refused) {
			if name, err := admit.Admit(hostPort); err == nil {
				t.Errorf("%s: Admit(%s) = %q, want it refused", tc.pattern, hostPort, name)
			}
		}
	}
}

// A pattern that permits nothing must not come from a typing error, nor one that permits more than is written.
func TestParsePattern_Refuses(t *testing.T) {
	for _, text := range []string{
		"", ":", "host", "host:", ":8000", "host:0", "host:65536", "host:8100-8000", "host:8000-", "host:-8000", "host:8000-8100-8200", "host:+80",
		"host:080", "host:http", "host:*", "*:8000", "*.:8000", "*.*:8000", "a.*:8000", "*a:8000", "*.10.0.0.1:8000", "*.fd00::1:8000", "*.0x1:8000", "*.com.:8000",
		"10.0.0.0/33:8000", "10.0.0.0/:8000", "10.0.0.0/08:8000", "10.0.0.0/+8:8000", "10.0.0.1/8:8000", "10.0.0.0/8/8:8000", "host/8:8000",
		"10.0.0:8000", "10.0.0.0.0:8000", "010.0.0.1:8000", "10:8000", "fd00::1:8000", "fd00::/8:8000", "[fd00::/8]:8000", "[fd00::1:8000",
		"fd00::1]:8000", "[10.0.0.1]:8000", "[host]:8000", "[fe80::1%eth0]:8000", "[::ffff:10.0.0.1]:8000", "[::ffff:10.0.0.0]/104:8000",
		"[fd00::]/129:8000", "[]:8000", "http://host:8000", "user@host:8000", "host:8000/v1", "hö:8000", "ho st:8000", "0.0.0.0:8000", "[::]:8000",
		"169.254.169.254:80", "a,b:8000",
	} {
		if _, err := ParsePattern(text); err == nil {
			t.Errorf("ParsePattern(%q) is accepted", text)
		}
	}
}

// anywhere permits what has the form of an endpoint, so that what is refused is refused for its form.
func anywhere(tb testing.TB) []Pattern {
	tb.Helper()
	return patterns(tb, "0.0.0.0/0:1-65535", "[::]/0:1-65535", "*.example:1-65535", "localhost:1-65535", "*.1a:1-65535", "*.local:1-65535")
}

func TestAdmit_RefusesWhatIsNoPlainHostAndPort(t *testing.T) {
	for _, hostile := range []string{
		"", ":", "a.example", "a.example:", ":8000", "8000", "a.example:0", "a.example:65536", "a.example:-1", "a.example:+80", "a.example:080", "a.example:8e3",
		"a.example:80 ", " a.example:80", "a.example :80", "a.example:80\r\nx: y", "a.example\x00:80", "a.example:80\x00", "a.example\t:80",
		"http://a.example:80", "//a.example:80", "a.example:80/v1", "a.example/v1:80", "a.example:80?x", "a.example?x:80", "a.example:80#x", "a.example#:80",
		"user@a.example:80", "user:word@a.example:80", "a.example:80@b.example:80", "evil\\@a.example:80", "a.example%2f:80", "%61.example:80",
		"a.example.:80", "a..example:80", ".example:80", "-a.example:80", "a.example:80,b.example:80", "a.example:80:80", "[a.example]:80",
		"127.1:80", "2130706433:80", "0x7f.1:80", "0x7f000001:80", "127.0.0.0x1:80", "0x7F.0.0.0X1:80", "017700000001:80", "127.0.0.01:80", "0177.0.0.1:80", "127.0.0.1.:80",
		"0:80", "0x:80", "256.0.0.1:80", "1.2.3.4.5:80", "0.0.0.0:80", "255.255.255.255:80", "224.0.0.1:80", "169.254.169.254:80",
		"::1:80", "[::1:80", "::1]:80", "[[::1]]:80", "[::1]80", "[::1]:80]", "[127.0.0.1]:80", "[::]:80", "[ff02::1]:80", "[fe80::1]:80", "[fe80::1%eth0]:80", "[fe80::1%25eth0]:80", "[::1%1]:80",
		"[::ffff:127.0.0.1]:80", "[::ffff:a9fe:a9fe]:80", "[0:0:0:0:0:ffff:7f00:1]:80", "[v1.a]:80",
		"ä.example:80", "a。example:80", "１２７.0.0.1:80", "①.example:80", "\u212A.example:80", "localho\u017Ft:80", "[fd00::1%1]:80", "a.example：80", "a.\u200Bexample:80", "\xff.example:80",
		strings.Repeat("a", 64) + ".example:80", strings.Repeat("a.", 130) + "example:80", strings.Repeat("a", 1<<16),
	} {
		admit := NewNamed(anywhere(t))
		name, err := admit.Admit(hostile)
		if err == nil {
			t.Errorf("Admit(%q) = %q, want it refused", hostile, name)
		} else if len(err.Error()) > 1024 {
			t.Errorf("Admit(%.20q…): an error of %d bytes", hostile, len(err.Error()))
		}
	}
}

// One engine has one name, however it is spelled.
func TestAdmit_NamesAnEndpointInOneForm(t *testing.T) {
	admit := NewNamed(anywhere(t))
	w := watch(t, admit)
	w.want("")
	for spelled, want := range map[string]string{
		"A.Example:80": "a.example:80", "[FD00:0:0::0001]:80": "[fd00::1]:80", "[::7f00:1]:80": "[::7f00:1]:80", "LOCALHOST:80": "localhost:80",
	} {
		for _, hostPort := range []string{spelled, want, spelled} {
			if name, err := admit.Admit(hostPort); name != want || err != nil {
				t.Errorf("Admit(%s) = %q, %v, want %q", hostPort, name, err, want)
			}
		}
		<-w.lists
		w.quiet()
	}
}

func FuzzAdmit(f *testing.F) {
	allow := patterns(f, "10.0.0.0/8:8000-8100", "[fd00::]/8:8000", "*.svc.cluster.local:8000", "host:8000")
	f.Fuzz(func(t *testing.T, hostPort string) {
		admit := NewNamed(allow)
		name, err := admit.Admit(hostPort)
		if err != nil {
			return
		}
		// What the URL parser and the dialer make of it is a host and a port that a pattern permits, and nothing besides.
		u, err := url.Parse("http://" + name)
		if err != nil || u.Host != name || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("Admit(%q) = %q, which the URL parser reads as %+v (%v)", hostPort, name, u, err)
		}
		instance, err := upstream.NewInstance(upstream.RolePrefill, "", "http://"+name)
		if err != nil || instance.Authority() != name {
			t.Fatalf("Admit(%q) = %q, of which the instance is %+v (%v)", hostPort, name, instance, err)
		}
		host, portText, err := net.SplitHostPort(name)
		port, portErr := strconv.Atoi(portText)
		if err != nil || portErr != nil {
			t.Fatalf("Admit(%q) = %q: %v, %v", hostPort, name, err, portErr)
		}
		addr, err := netip.ParseAddr(host)
		switch {
		case err != nil && port == 8000 && (host == "host" || strings.HasSuffix(host, ".svc.cluster.local")):
		case err == nil && netip.MustParsePrefix("10.0.0.0/8").Contains(addr) && 8000 <= port && port <= 8100:
		case err == nil && netip.MustParsePrefix("fd00::/8").Contains(addr) && port == 8000:
		default:
			t.Fatalf("Admit(%q) = %q, which no pattern permits", hostPort, name)
		}
		if again, err := NewNamed(allow).Admit(name); again != name || err != nil {
			t.Fatalf("Admit(%q) = %q, and that gives %q, %v", hostPort, name, again, err)
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	f.Fuzz(func(t *testing.T, text, hostPort string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		name, err := NewNamed([]Pattern{p}).Admit(hostPort)
		if err != nil {
			return
		}
		// Addresses are permitted by addresses, names by names.
		host, _, err := net.SplitHostPort(name)
		if err != nil {
			t.Fatalf("Admit(%q) = %q: %v", hostPort, name, err)
		}
		_, err = netip.ParseAddr(host)
		pattern, _, _ := strings.Cut(strings.TrimPrefix(text[:strings.LastIndexByte(text, ':')], "["), "/")
		_, patternErr := netip.ParseAddr(strings.TrimSuffix(pattern, "]"))
		if (err == nil) != (patternErr == nil) {
			t.Fatalf("pattern %q permits %q", text, name)
		}
	})
}
