package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"

	"carryover/upstream/vllmsim"
)

// demoSetup is how simulated instances run a connector, and how the proxy is configured for them. A nil function does nothing.
type demoSetup struct {
	begin   func(*deployment) error                               // before the first instance
	engine  func(*deployment, *vllmsim.Config)                    // completes the configuration of an instance
	started func(*deployment, *vllmsim.Instance, *InstanceConfig) // completes the proxy's configuration of an instance
	end     func(*deployment) error                               // completes the proxy's settings
}

// demoChunk is LMCache's chunk_size in a demo, whose prompts are shorter than the usual chunk of 256 tokens.
const demoChunk = 16

// demoSetups returns the connectors that the demo can show.
func demoSetups() map[string]demoSetup {
	return map[string]demoSetup{
		connectorNIXL:  {},
		connectorMulti: {}, // the simulated engines have only NIXL; the proxy sees nothing but its params
		// A backend with params of its own, whose decode leaves no blocks behind.
		connectorOrchestrated: {engine: func(_ *deployment, c *vllmsim.Config) { c.Bidirectional = false }},
		connectorMooncake: {
			engine:  func(_ *deployment, c *vllmsim.Config) { c.Connector = vllmsim.ConnectorMooncake },
			started: func(_ *deployment, i *vllmsim.Instance, told *InstanceConfig) { told.BootstrapPort = i.BootstrapPort() },
		},
		connectorLMCache: {begin: (*deployment).beginLMCache, engine: (*deployment).lmcacheEngine, end: (*deployment).endLMCache},
		connectorLMCacheStorage: {
			begin: (*deployment).beginStorage,
			engine: func(d *deployment, c *vllmsim.Config) {
				c.Connector, c.Storage = vllmsim.ConnectorLMCacheStorage, vllmsim.StorageConfig{Folder: d.folder, ChunkSize: demoChunk}
			},
		},
		connectorMoRIIO:  {begin: (*deployment).beginRegistration, engine: registeringEngine(vllmsim.ConnectorMoRIIO)},
		connectorP2PNCCL: {begin: (*deployment).beginRegistration, engine: registeringEngine(vllmsim.ConnectorP2PNCCL)},
	}
}

// demoConnectors returns the names of these connectors, in the order of the setting.
func demoConnectors() []string {
	setups := demoSetups()
	return slices.DeleteFunc(connectors(), func(name string) bool { _, ok := setups[name]; return !ok })
}

// beginStorage makes the folder that all instances share.
func (d *deployment) beginStorage() (err error) {
	if d.folder, err = os.MkdirTemp("", "carryover-demo-"); err == nil {
		d.undo = append(d.undo, func() { _ = os.RemoveAll(d.folder) })
	}
	return err
}

// The ports that reservePort chooses from. They are below those that systems give to connections and to listeners without a port (Linux:
// from 32768), so nobody gets the port before the proxy listens there.
const firstReserved, reservable = 20_000, 12_000

// reservePort finds a free port for the proxy's listener, because instances have to know the port before.
func (d *deployment) reservePort() (err error) {
	for range 100 {
		d.port = firstReserved + rand.IntN(reservable)
		var l net.Listener
		if l, err = net.Listen("tcp", d.listen()); err == nil {
			return l.Close()
		}
	}
	return err
}

// listen returns the proxy's address at that port.
func (d *deployment) listen() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)) }

func (d *deployment) beginLMCache() error {
	err := d.reservePort()
	d.settings.LMCache.Listen, d.settings.LMCache.ChunkTokens = d.listen(), demoChunk
	return err
}

func (d *deployment) lmcacheEngine(c *vllmsim.Config) {
	c.Connector, c.LMCache.ProxyPort, c.LMCache.ChunkSize = vllmsim.ConnectorLMCache, d.port, demoChunk
}

// endLMCache names the receivers of decode instances.
func (d *deployment) endLMCache() error {
	registry := map[string]map[string]any{}
	for _, instance := range d.decode {
		initPorts, allocPorts := instance.LMCachePorts()
		registry[instance.URL()] = map[string]any{memberHost: "127.0.0.1", memberInit: initPorts, memberAlloc: allocPorts}
	}
	text, err := json.Marshal(registry)
	if err != nil {
		return fmt.Errorf("name receivers: %w", err)
	}
	d.settings.LMCache.DecoderRegistry = string(text)
	return nil
}

func (d *deployment) beginRegistration() error {
	err := d.reservePort()
	d.settings.Discovery.ZMQListen = d.listen()
	return err
}

// registeringEngine configures an instance that announces itself to the proxy.
func registeringEngine(connector string) func(*deployment, *vllmsim.Config) {
	return func(d *deployment, c *vllmsim.Config) { c.Connector, c.Registration.Proxy = connector, d.listen() }
}
