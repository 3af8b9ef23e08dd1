// Codex, as it is used in scripts, against the program with simulated engines.
import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { fault, outcomes, records, run, told, warmUp, workplace } from './agent.mjs'

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

const final = { CARRYOVER_FINAL: 'true' }

// codex is a workplace where Codex asks at url.
async function codex(t, url) {
  const place = await workplace(t, ({ home }) => ({ CODEX_HOME: home, PROXY_KEY: "a client's key" }))
  await writeFile(`${place.home}/config.toml`, config(url))
  return place
}

// ask has Codex answer one prompt, in the thread that is named if one is. What it runs, it runs where this runs.
async function ask(place, prompt, { thread, env, args = [], fails = false } = {}) {
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

// session has three prompts, of which the second makes the model call a tool, and ends.
async function session(place) {
  const first = await ask(place, 'THINK SAY The light is lit.')
  const second = await ask(place, 'CALL exec_command {"cmd": "cat weather.txt"}', first)
  const third = await ask(place, 'What follows from it?', { ...first, env: final })
  assert.equal(first.text, 'The light is lit.')
  assert.deepEqual(second.outputs, [`${told}\n`])
  assert.ok(second.text && third.text)
}

test('turns after the first hit, those of tools too', async (t) => {
  const place = await codex(t, process.env.CARRYOVER_URL)
  await warmUp(() => session(place))
  const [, turns] = await records(() => session(place))
  assert.deepEqual(outcomes(turns), ['miss, first_turn', 'hit', 'hit', 'hit'])
  assert.equal(new Set(turns.map(({ conversation }) => conversation)).size, 1)
  for (const turn of turns.slice(1)) assert.ok(turn.tokens_offered > 0.99 * turn.prompt_tokens - 200, JSON.stringify(turn))
})

test('errors are understood', async (t) => {
  const place = await codex(t, process.env.NOWHERE_URL)
  const said = await ask(place, 'SAY No.', { args: ['-c', 'model_providers.carryover.stream_max_retries=0'], fails: true })
  assert.match(said.error, /engine is available/)
})

test('a stream that breaks is asked for again', async (t) => {
  const place = await codex(t, process.env.CARRYOVER_URL)
  await ask(place, 'SAY Yes.', { env: final }) // engines are probed before they first serve an API
  await fault(process.env.DECODE_URL, { route: '/v1/responses', kind: 'die_mid_event', events: 7, count: 1 })
  const [said, turns] = await records(() => ask(place, 'SAY One, two, three, four, five, six.', { env: final }))
  assert.equal(said.text, 'One, two, three, four, five, six.')
  assert.deepEqual(turns.map(({ code }) => code), ['decode_failed', undefined])
})
