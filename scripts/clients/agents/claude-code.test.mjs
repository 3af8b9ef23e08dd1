// Claude Code, as it is used in scripts, against the program with simulated engines.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { fault, outcomes, records, run, told, warmUp, workplace } from './agent.mjs'

const program = fileURLToPath(new URL(`node_modules/@anthropic-ai/claude-code-linux-${process.arch}/claude`, import.meta.url))

const settings = (url) => () => ({
  ANTHROPIC_BASE_URL: url,
  ANTHROPIC_AUTH_TOKEN: "a client's key",
  ANTHROPIC_MODEL: 'sim',
  ANTHROPIC_DEFAULT_HAIKU_MODEL: 'sim',
  CLAUDE_CODE_ATTRIBUTION_HEADER: '0',
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  DISABLE_TELEMETRY: '1',
  DISABLE_AUTOUPDATER: '1',
})

const final = { ANTHROPIC_CUSTOM_HEADERS: 'X-Conversation-Final: true' }

// ask has Claude Code answer one prompt, in the session that is named if one is. Its steps are what it has sent and got.
async function ask(place, prompt, { session, env, args = [], fails = false } = {}) {
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

// session has three prompts, of which the second makes the model call a tool, and ends.
async function session(place, env) {
  const first = await ask(place, 'THINK SAY The light is lit.', { env })
  const second = await ask(place, read(place), { env, session: first.session })
  const third = await ask(place, 'What follows from it?', { session: first.session, env: { ...env, ...final } })
  assert.equal(first.text, 'The light is lit.')
  assert.match(second.results[0].content, new RegExp(told))
  return [first.text, second.text, third.text]
}

test('turns after the first hit, those of tools too', async (t) => {
  const place = await workplace(t, settings(process.env.CARRYOVER_URL))
  await warmUp(() => session(place))
  for (const [what, env] of Object.entries({ 'as it is told to be': {}, 'with its line of attribution': { CLAUDE_CODE_ATTRIBUTION_HEADER: '1' } })) {
    await t.test(what, async () => {
      const [, turns] = await records(() => session(place, env))
      assert.deepEqual(outcomes(turns), ['miss, first_turn', 'hit', 'hit', 'hit'])
      assert.equal(new Set(turns.map(({ conversation }) => conversation)).size, 1)
      for (const turn of turns.slice(1)) assert.ok(turn.tokens_offered > 0.99 * turn.prompt_tokens - 200, JSON.stringify(turn))
    })
  }
})

test('its answers are those of a lone engine', async (t) => {
  const place = await workplace(t, settings(process.env.CARRYOVER_URL))
  const got = await session(place)
  const want = await session(place, { ANTHROPIC_BASE_URL: process.env.LONE_URL })
  assert.deepEqual(got, want)
})

test('a sub-agent has a conversation of its own', async (t) => {
  const place = await workplace(t, settings(process.env.CARRYOVER_URL))
  const order = 'CALL Agent {"description": "Look", "prompt": "SAY A ship.", "subagent_type": "general-purpose", "run_in_background": false}'
  const [said, turns] = await records(() => ask(place, order, { env: final }))
  assert.match(JSON.stringify(said.results), /A ship\./)
  assert.equal(turns.length, 3)
  assert.equal(new Set(turns.map(({ conversation }) => conversation)).size, 2)
})

test('errors are understood', async (t) => {
  const place = await workplace(t, settings(process.env.CARRYOVER_URL))
  for (const [what, env, message] of [
    ['engines gone', { ANTHROPIC_BASE_URL: process.env.NOWHERE_URL }, /engine is available/],
    ['unknown model', { ANTHROPIC_MODEL: 'another' }, /another/],
  ]) {
    await t.test(what, async () => {
      const said = await ask(place, 'SAY No.', { env: { ...env, CLAUDE_CODE_MAX_RETRIES: '0' }, fails: true })
      assert.match(said.text, message)
    })
  }
})

test('a stream that breaks is asked for again', async (t) => {
  const place = await workplace(t, settings(process.env.CARRYOVER_URL))
  await ask(place, 'SAY Yes.', { env: final }) // engines are probed before they first serve an API
  await fault(process.env.DECODE_URL, { route: '/v1/messages', kind: 'die_mid_event', events: 5, count: 1 })
  const [said, turns] = await records(() => ask(place, 'SAY One, two, three, four, five, six.', { env: final }))
  assert.equal(said.text, 'One, two, three, four, five, six.')
  assert.equal(turns[0].status, 200)
  assert.deepEqual(turns.map(({ code }) => code), ['decode_failed', undefined])
})
