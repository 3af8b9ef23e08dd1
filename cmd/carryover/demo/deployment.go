package demo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// The simulated engines compute 5,000 and generate 200 tokens a second, so that reuse shows with prompts that fit on a screen.
const (
	demoPrefillPerToken  = 200 * time.Microsecond
	demoTransferPerBlock = 50 * time.Microsecond
	demoInterToken       = 5 * time.Millisecond
)

// Deployment is a set of simulated instances, and the settings of the proxy in front of them.
type Deployment struct {
	Prefill, Decode []*vllmsim.Instance
	Settings        config.Config
	port            int      // of the proxy, for the connector's notifications
	folder          string   // shared by the instances
	undo            []func() // Close calls them
}

// StartDeployment starts simulated instances and returns the settings of a proxy for them.
func StartDeployment(o Options) (*Deployment, error) {
	d := &Deployment{Settings: config.Default()}
	if err := d.start(o); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// start changes only those default settings that the connector needs.
func (d *Deployment) start(o Options) error {
	c := &d.Settings
	c.Prefill, c.Decode, c.Connector.Name = nil, nil, o.Connector
	if err := d.begin(); err != nil {
		return fmt.Errorf("demo of %s: %w", o.Connector, err)
	}
	for n := range o.Prefills + o.Decodes {
		role, number, started, ttl := config.RolePrefill, n+1, &d.Prefill, time.Duration(0)
		if n >= o.Prefills {
			role, number, started, ttl = config.RoleDecode, n-o.Prefills+1, &d.Decode, c.Store.DecoderKVTTL
		}
		instance, err := vllmsim.Start(d.engine(role))
		if err != nil {
			return fmt.Errorf("start simulated %s instance: %w", role, err)
		}
		*started = append(*started, instance)
		*c.Instances(role) = append(*c.Instances(role), config.InstanceConfig{Instance: upstream.Instance{
			BaseURL: instance.URL(), Name: fmt.Sprintf("%s-%d", role, number), KVHost: config.KVHostAuto, KVTTL: ttl,
			KVPort: instance.Addresses().BootstrapPort,
		}})
	}
	if o.Connector == config.ConnectorLMCache {
		d.nameReceivers()
	}
	return nil
}

// demoChunk is LMCache's chunk_size. The default of 256 tokens is more than a prompt of the demo.
const demoChunk = 16

// begin makes what all instances share: the address of the proxy's listener, or a folder.
func (d *Deployment) begin() (err error) {
	switch d.Settings.Connector.Name {
	case config.ConnectorLMCache:
		err = d.reservePort()
		d.Settings.LMCache.Listen, d.Settings.LMCache.ChunkTokens = d.Listen(), demoChunk
	case config.ConnectorLMCacheStorage:
		if d.folder, err = os.MkdirTemp("", "carryover-demo-"); err == nil {
			d.undo = append(d.undo, func() { _ = os.RemoveAll(d.folder) })
		}
	}
	return err
}

func (d *Deployment) engine(role string) vllmsim.Config {
	cfg := vllmsim.DefaultConfig()
	cfg.Role = role
	cfg.Render, cfg.OutputTokenIDs, cfg.MessageParams = true, true, true // agents need them
	cfg.Timing = vllmsim.Timing{
		PrefillPerToken: demoPrefillPerToken, TransferPerBlock: demoTransferPerBlock, InterToken: demoInterToken,
	}
	switch d.Settings.Connector.Name { // NIXL alone simulates MultiConnector: the proxy sees only NIXL's params
	case config.ConnectorOrchestrated:
		cfg.Bidirectional = false // a backend with params of its own, whose decode keeps no blocks
	case config.ConnectorMooncake:
		cfg.Connector = vllmsim.ConnectorMooncake
	case config.ConnectorLMCache:
		cfg.Connector, cfg.LMCache.ProxyPort, cfg.LMCache.ChunkSize = vllmsim.ConnectorLMCache, d.port, demoChunk
	case config.ConnectorLMCacheStorage:
		cfg.Connector, cfg.Storage = vllmsim.ConnectorLMCacheStorage, vllmsim.StorageConfig{Folder: d.folder, ChunkSize: demoChunk}
	}
	return cfg
}

// Reserved ports are below those that systems assign (Linux: from 32768), so nobody else gets one before the proxy listens there.
const firstReserved, reservable = 20_000, 12_000

// reservePort chooses the port of the proxy's listener, which instances have to know first.
func (d *Deployment) reservePort() (err error) {
	for range 100 {
		d.port = firstReserved + rand.IntN(reservable)
		var l net.Listener
		if l, err = net.Listen("tcp", d.Listen()); err == nil {
			return l.Close()
		}
	}
	return err
}

// Listen returns the reserved address of the proxy.
func (d *Deployment) Listen() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)) }

func (d *Deployment) nameReceivers() {
	registry := map[string]map[string]any{}
	for _, instance := range d.Decode {
		at := instance.Addresses()
		registry[instance.URL()] = map[string]any{config.MemberHost: "127.0.0.1", config.MemberInit: at.LMCacheInit, config.MemberAlloc: at.LMCacheAlloc}
	}
	text, _ := json.Marshal(registry) // texts and numbers only
	d.Settings.LMCache.DecoderRegistry = string(text)
}

// Close stops the instances.
func (d *Deployment) Close() {
	for _, instance := range append(d.Prefill, d.Decode...) {
		_ = instance.Close()
	}
	for _, undo := range d.undo {
		undo()
	}
}

func (d *Deployment) pinned() (answers int) {
	for _, instance := range d.Decode {
		answers += instance.Stats().Pins
	}
	return answers
}

func (d *Deployment) misread() int {
	n := 0
	for _, instance := range append(d.Prefill, d.Decode...) {
		stats := instance.Stats()
		n += stats.CorruptReads + stats.DoubleReads
	}
	return n
}

func (d *Deployment) decoded() (sum vllmsim.Stats) {
	for _, instance := range d.Decode {
		stats := instance.Stats()
		sum.LocalHitTokens += stats.LocalHitTokens
		sum.ExternalTokens += stats.ExternalTokens
		sum.ComputedTokens += stats.ComputedTokens
	}
	return sum
}
