package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"carryover/upstream/vllmsim"
)

// simConnectors are the connectors that an instance can be simulated with, the default first.
func simConnectors() []string {
	return []string{vllmsim.ConnectorNIXL, vllmsim.ConnectorLMCache, vllmsim.ConnectorLMCacheStorage, vllmsim.ConnectorMooncake}
}

// addSimConnectorFlags adds the flags of connectors, named like the settings of the engines that they stand for.
func addSimConnectorFlags(flags *pflag.FlagSet, cfg *vllmsim.Config) {
	flags.StringVar(&cfg.Connector, "connector", cfg.Connector, "KV connector: "+strings.Join(simConnectors(), ", "))
	l := &cfg.LMCache
	flags.IntVar(&l.TP, "lmcache-tp", l.TP, "tensor-parallel ranks that send and receive")
	flags.IntVar(&l.ChunkSize, "lmcache-chunk-size", l.ChunkSize, "chunk_size")
	flags.IntVar(&l.ProxyPort, "lmcache-proxy-port", l.ProxyPort, "pd_proxy_port, 0 announces nothing")
	flags.IntSliceVar(&l.InitPorts, "lmcache-init-ports", nil, "pd_peer_init_port of a decode instance, a port for each rank; free ones unless given")
	flags.IntSliceVar(&l.AllocPorts, "lmcache-alloc-ports", nil, "pd_peer_alloc_port, likewise")
	flags.StringVar(&cfg.Storage.Folder, "storage-folder", "", "folder that instances with lmcache-storage share")
	flags.IntVar(&cfg.Storage.ChunkSize, "storage-chunk-size", cfg.Storage.ChunkSize, "chunk_size of that storage")
	flags.IntVar(&cfg.Mooncake.BootstrapPort, "mooncake-bootstrap-port", 8998, "VLLM_MOONCAKE_BOOTSTRAP_PORT of a prefill instance, 0 lets the system choose")
}

// tellPorts says where the connector of an instance listens, which those who set up a proxy need to know.
func tellPorts(out io.Writer, cfg *vllmsim.Config, instance *vllmsim.Instance) {
	if port := instance.Addresses().BootstrapPort; port > 0 {
		fmt.Fprintf(out, "its bootstrap server listens at port %d\n", port)
	}
	if at := instance.Addresses(); cfg.Connector == vllmsim.ConnectorLMCache && len(at.LMCacheInit) > 0 {
		fmt.Fprintf(out, "its LMCache receives at init ports %s, alloc ports %s\n", ports(at.LMCacheInit), ports(at.LMCacheAlloc))
	}
}
