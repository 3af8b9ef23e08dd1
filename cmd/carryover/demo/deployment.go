package demo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// demoSetup is how simulated instances run a connector, and how the proxy is configured for them. A nil function does nothing.
type demoSetup struct {
	begin   func(*Deployment) error                                      // before the first instance
	engine  func(*Deployment, *vllmsim.Config)                           // completes the configuration of an instance
	started func(*Deployment, *vllmsim.Instance, *config.InstanceConfig) // completes the proxy's configuration of an instance
	end     func(*Deployment) error                                      // completes the proxy's settings
}

// demoChunk is LMCache's chunk_size in a demo, whose prompts are shorter than the usual chunk of 256 tokens.
const demoChunk = 16

// demoSetups returns the connectors that the demo can show.
func demoSetups() map[string]demoSetup {
	return map[string]demoSetup{
		config.ConnectorNIXL:  {},
		config.ConnectorMulti: {}, // the simulated engines have only NIXL; the proxy sees nothing but its params
		// A backend with params of its own, whose decode leaves no blocks behind.
		config.ConnectorOrchestrated: {engine: func(_ *Deployment, c *vllmsim.Config) { c.Bidirectional = false }},
		config.ConnectorMooncake: {
			engine: func(_ *Deployment, c *vllmsim.Config) { c.Connector = vllmsim.ConnectorMooncake },
			started: func(_ *Deployment, i *vllmsim.Instance, told *config.InstanceConfig) {
				told.BootstrapPort = i.Addresses().BootstrapPort
			},
		},
		config.ConnectorLMCache: {begin: (*Deployment).beginLMCache, engine: (*Deployment).lmcacheEngine, end: (*Deployment).endLMCache},
		config.ConnectorLMCacheStorage: {
			begin: (*Deployment).beginStorage,
			engine: func(d *Deployment, c *vllmsim.Config) {
				c.Connector, c.Storage = vllmsim.ConnectorLMCacheStorage, vllmsim.StorageConfig{Folder: d.folder, ChunkSize: demoChunk}
			},
		},
	}
}

// Connectors returns the names of these connectors, in the order of the setting.
func Connectors() []string {
	setups := demoSetups()
	return slices.DeleteFunc(config.Connectors(), func(name string) bool { _, ok := setups[name]; return !ok })
}

// beginStorage makes the folder that all instances share.
func (d *Deployment) beginStorage() (err error) {
	if d.folder, err = os.MkdirTemp("", "carryover-demo-"); err == nil {
		d.undo = append(d.undo, func() { _ = os.RemoveAll(d.folder) })
	}
	return err
}

// The ports that reservePort chooses from. They are below those that systems give to connections and to listeners without a port (Linux:
// from 32768), so nobody gets the port before the proxy listens there.
const firstReserved, reservable = 20_000, 12_000

// reservePort finds a free port for the proxy's listener, because instances have to know the port before.
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

// Listen returns the proxy's address at that port.
func (d *Deployment) Listen() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)) }

func (d *Deployment) beginLMCache() error {
	err := d.reservePort()
	d.Settings.LMCache.Listen, d.Settings.LMCache.ChunkTokens = d.Listen(), demoChunk
	return err
}

func (d *Deployment) lmcacheEngine(c *vllmsim.Config) {
	c.Connector, c.LMCache.ProxyPort, c.LMCache.ChunkSize = vllmsim.ConnectorLMCache, d.port, demoChunk
}

// endLMCache names the receivers of decode instances.
func (d *Deployment) endLMCache() error {
	registry := map[string]map[string]any{}
	for _, instance := range d.Decode {
		at := instance.Addresses()
		registry[instance.URL()] = map[string]any{config.MemberHost: "127.0.0.1", config.MemberInit: at.LMCacheInit, config.MemberAlloc: at.LMCacheAlloc}
	}
	text, err := json.Marshal(registry)
	if err != nil {
		return fmt.Errorf("name receivers: %w", err)
	}
	d.Settings.LMCache.DecoderRegistry = string(text)
	return nil
}
