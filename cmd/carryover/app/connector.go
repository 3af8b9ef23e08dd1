package app

import (
	"fmt"
	"log/slog"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/connector/mooncake"
	"carryover/upstream/connector/nixl"
	"carryover/upstream/connector/orchestrated"
	"carryover/upstream/connector/storage"
)

// OpenConnector makes the connector that is configured, and adds what it needs to what runs beside the server.
func (p *Proxy) OpenConnector(cfg config.Config, client *upstream.Client, logger *slog.Logger) (server.Connector, error) {
	switch cfg.Connector.Name {
	case config.ConnectorNIXL, config.ConnectorMulti:
		// MultiConnector merges its children's params into one object (multi_connector.py), so that of NIXL is all there is.
		return nixl.Connector{Among: cfg.Connector.Name == config.ConnectorMulti}, nil
	case config.ConnectorLMCache:
		return p.openLMCache(cfg.LMCache, logger)
	case config.ConnectorLMCacheStorage:
		return storage.Connector{}, nil
	case config.ConnectorMooncake:
		return &mooncake.Connector{BootstrapPort: cfg.Mooncake.BootstrapPort, Fetch: client.FetchOpen}, nil
	case config.ConnectorOrchestrated:
		return orchestrated.Connector{Response: cfg.Connector.OrchestratedForm == config.OrchestratedResponse}, nil
	}
	return nil, fmt.Errorf("connector %q: unknown", cfg.Connector.Name)
}
