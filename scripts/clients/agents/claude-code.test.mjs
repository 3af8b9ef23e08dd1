// Claude Code, as it is used in scripts, against the program with simulated engines.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fault, outcomes, records, warmUp, workplace } from './agent.mjs'
import { ask, final, session, settings } from './claude-code.mjs'

test('turns after the first hit, those of tools too', async (t) => {
  const place = await workplace(t, settings(process.env.CARRYOVER_URL))
  await warmUp(() => session(place))
  for (const [what, env] of Object.entries({ 'as it is told to be': {}, 'with its line of attribution': { CLAUDE_CODE_ATTRIBUTION_HEADER: '1' } })) {
    await t.test(what, async () => {
      const [, turns] = await records(() => session(place, env))
      const [first, ...rest] = outcomes(turns)
      assert.match(first, /^(miss|prefix), first_turn$/)
      assert.deepEqual(rest, ['hit', 'hit', 'hit'])
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
