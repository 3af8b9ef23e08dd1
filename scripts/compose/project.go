package compose

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// Root is the folder of compose.yaml, as seen from this package.
const Root = "../.."

// Load reads compose.yaml in a folder with profiles switched on and variables as given ("NAME=value"); no variables of this process
// take part. What docker compose would refuse is refused: unknown keys, wrong types, undefined networks, volumes, secrets and
// dependencies, and cycles of these.
func Load(ctx context.Context, folder string, profiles, variables []string) (*types.Project, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	options, err := cli.NewProjectOptions([]string{filepath.Join(folder, "compose.yaml")},
		cli.WithWorkingDirectory(folder), cli.WithProfiles(profiles), cli.WithEnv(variables))
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return nil, fmt.Errorf("compose.yaml with profiles %v: %w", profiles, err)
	}
	return project, nil
}
