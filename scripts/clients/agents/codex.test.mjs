// Codex, as it is used in scripts, against the program with simulated engines.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fault, outcomes, records, warmUp } from './agent.mjs'
import { ask, codex, final, session } from './codex.mjs'

test('turns after the first hit, those of tools too', async (t) => {
  const place = await codex(t, process.env.CARRYOVER_URL)
  await warmUp(() => session(place))
  const [, turns] = await records(() => session(place))
  const [first, ...rest] = outcomes(turns)
  assert.match(first, /^(miss|prefix), first_turn$/)
  assert.deepEqual(rest, ['hit', 'hit', 'hit'])
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
