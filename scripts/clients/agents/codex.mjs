// Codex, as it is used in scripts.
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { run, told, workplace } from './agent.mjs'

const machine = { x64: 'x86_64', arm64: 'aarch64' }[process.arch]
const program = fileURLToPath(
  new URL(`node_modules/@openai/codex-linux-${process.arch}/vendor/${machine}-unknown-linux-musl/bin/codex`, import.meta.url),
)

const config = (url) => `
model = "sim"
model_provider = "carryover"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.carryover]
name = "Carryover"
base_url = "${url}/v1"
wire_api = "responses"
env_key = "PROXY_KEY"
env_http_headers = { "X-Conversation-Final" = "CARRYOVER_FINAL" }
request_max_retries = 0
`

export const final = { CARRYOVER_FINAL: 'true' }

// codex is a workplace where Codex asks at url.
export async function codex(t, url) {
  const place = await workplace(t, ({ home }) => ({ CODEX_HOME: home, PROXY_KEY: "a client's key" }))
  await writeFile(`${place.home}/config.toml`, config(url))
  return place
}

// ask has Codex answer one prompt, in the thread that is named if one is. What it runs, it runs where this runs.
export async function ask(place, prompt, { thread, env, args = [], fails = false } = {}) {
  const options = [...args, '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '--json']
  const printed = await run(place, env, program, ['exec', ...(thread ? ['resume', ...options, thread] : options), prompt], fails)
  const steps = printed.trim().split('\n').map((line) => JSON.parse(line))
  const items = steps.filter(({ type }) => type === 'item.completed').map(({ item }) => item)
  return {
    text: items.filter(({ type }) => type === 'agent_message').map(({ text }) => text).join(''),
    thread: steps.find(({ type }) => type === 'thread.started').thread_id,
    outputs: items.filter(({ type }) => type === 'command_execution').map((item) => item.aggregated_output),
    error: steps.find(({ type }) => type === 'turn.failed')?.error.message,
  }
}

// session has three prompts, of which the second makes the model call a tool, and ends as last says.
export async function session(place, last = final) {
  const first = await ask(place, 'THINK SAY The light is lit.')
  const second = await ask(place, 'CALL exec_command {"cmd": "cat weather.txt"}', first)
  const third = await ask(place, 'What follows from it?', { ...first, env: last })
  assert.equal(first.text, 'The light is lit.')
  assert.deepEqual(second.outputs, [`${told}\n`])
  assert.ok(second.text && third.text)
}
