package contender

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/process"
)

// Site has the programs and files that contenders need, and the folder of their logs.
type Site struct {
	Self          []string // the command of this program, and the environment that it needs
	Variables     []string
	Carryover     string // program
	PythonExample string // file, "" for none
	Python        string // interpreter for the example
	Logs          string // folder
}

// log returns the log file of a process that works for a workload.
func (s *Site) log(w load.Workload, name string) string {
	return filepath.Join(s.Logs, strings.ReplaceAll(w.Name, " ", "-")+"-"+name+".log")
}

// own completes the command of a process of this program.
func (s *Site) own(c process.Command, arguments ...string) process.Command {
	c.Binary, c.Arguments, c.Variables = s.Self[0], append(s.Self[1:len(s.Self):len(s.Self)], arguments...), s.Variables
	return c
}

// StartEngines starts the engines of a workload, and returns how to stop them.
func (s *Site) StartEngines(ctx context.Context, w load.Workload) (*engines.Pair, func(), error) {
	var line string
	p, err := process.Start(ctx, s.own(process.Command{Name: "engines", Log: s.log(w, "engines"), FirstLine: &line}, "engines"))
	if err != nil {
		return nil, nil, err
	}
	e := &engines.Pair{}
	if err = json.Unmarshal([]byte(line), e); err == nil {
		err = e.Set(ctx, w.Pace())
	}
	if err != nil {
		p.Stop()
		return nil, nil, fmt.Errorf("engines: %w", err)
	}
	return e, p.Stop, nil
}
