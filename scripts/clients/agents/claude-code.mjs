// Claude Code, as it is used in scripts.
import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { run, told } from './agent.mjs'

const program = fileURLToPath(new URL(`node_modules/@anthropic-ai/claude-code-linux-${process.arch}/claude`, import.meta.url))

// settings are the environment in which it asks at url.
export const settings = (url) => () => ({
  ANTHROPIC_BASE_URL: url,
  ANTHROPIC_AUTH_TOKEN: "a client's key",
  ANTHROPIC_MODEL: 'sim',
  ANTHROPIC_DEFAULT_HAIKU_MODEL: 'sim',
  CLAUDE_CODE_ATTRIBUTION_HEADER: '0',
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  DISABLE_TELEMETRY: '1',
  DISABLE_AUTOUPDATER: '1',
})

export const final = { ANTHROPIC_CUSTOM_HEADERS: 'X-Conversation-Final: true' }

// ask has Claude Code answer one prompt, in the session that is named if one is. Its steps are what it has sent and got.
export async function ask(place, prompt, { session, env, args = [], fails = false } = {}) {
  const resumed = session ? ['--resume', session] : []
  const printed = await run(place, env, program, ['-p', prompt, '--output-format', 'stream-json', '--verbose', ...resumed, ...args], fails)
  const steps = printed.trim().split('\n').map((line) => JSON.parse(line))
  const said = steps.find(({ type }) => type === 'result')
  assert.equal(said.is_error, fails, said.result)
  const blocks = steps.flatMap(({ message }) => (Array.isArray(message?.content) ? message.content : []))
  return { text: said.result, session: said.session_id, results: blocks.filter(({ type }) => type === 'tool_result') }
}

// read orders the tool that reads the file.
const read = (place) => `CALL Read {"file_path": ${JSON.stringify(place.file)}}`

// session has three prompts, of which the second makes the model call a tool, and ends as last says.
export async function session(place, env, last = final) {
  const first = await ask(place, 'THINK SAY The light is lit.', { env })
  const second = await ask(place, read(place), { env, session: first.session })
  const third = await ask(place, 'What follows from it?', { session: first.session, env: { ...env, ...last } })
  assert.equal(first.text, 'The light is lit.')
  assert.match(second.results[0].content, new RegExp(told))
  return [first.text, second.text, third.text]
}
