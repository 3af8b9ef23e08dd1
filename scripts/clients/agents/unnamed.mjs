// A session of the agent that is named, of which the program reads no id: node unnamed.mjs AGENT. What was reused is in the records of the
// program, which scripts/clients looks at (unnamed.go).
import { workplace } from './agent.mjs'
import * as claude from './claude-code.mjs'
import * as codex from './codex.mjs'

const url = process.env.CARRYOVER_URL
const ends = []
const scope = { after: (end) => ends.push(end) }
try {
  if (process.argv[2] === 'codex') await codex.session(await codex.codex(scope, url), {})
  else await claude.session(await workplace(scope, claude.settings(url)), {}, {})
} finally {
  for (const end of ends) await end()
}
