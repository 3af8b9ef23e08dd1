// The Anthropic SDK for JavaScript against the program with simulated engines.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import { decode, decodeStats, fault, last, model, questions, stopped, system, wantHits, warmUp } from './deployment.mjs'

const route = '/v1/messages'

const at = (url, options) => new Anthropic({ baseURL: url, authToken: "a client's key", apiKey: null, maxRetries: 0, ...options })
const carryover = at(process.env.CARRYOVER_URL)
const lone = at(process.env.LONE_URL)

// The ways to ask. Each returns the message as the SDK has it.
const ways = {
  async whole(sdk, body, options) {
    const { data, response } = await sdk.messages.create({ model, max_tokens: 120, ...body }, options).withResponse()
    return { message: data, reuse: response.headers.get('X-KV-Reuse') }
  },
  // The SDK's own helper puts events together, and says what it makes of each.
  async stream(sdk, body, options) {
    const { data, response } = await sdk.messages.stream({ model, max_tokens: 120, ...body }, options).withResponse()
    let text = ''
    data.on('text', (delta) => (text += delta))
    const message = await data.finalMessage()
    const said = message.content.map((block) => block.text ?? '').join('')
    assert.equal(text, said)
    return { message, reuse: response.headers.get('X-KV-Reuse') }
  },
}

// Claude Code names its session in a header and in metadata.user_id: as JSON since 2.1.78, before that as the end of a word.
const namings = {
  'user_id, JSON': (id) => [{ metadata: { user_id: JSON.stringify({ device_id: 'd', account_uuid: '', session_id: id }) } }, {}],
  'user_id, a word': (id) => [{ metadata: { user_id: `user_${'0'.repeat(64)}_account__session_${id}` } }, {}],
  "Claude Code's header": (id) => [{}, { 'X-Claude-Code-Session-Id': id }],
  body: (id) => [{ conversation_id: id }, {}],
}

// What two answers to one prompt have in common: ids of calls and signatures are drawn.
const comparable = ({ content, stop_reason, model, usage }) => ({
  content: content.map(({ type, text, thinking, name, input }) => ({ type, text, thinking, name, input })),
  // What prefill took from caches counts apart.
  stop_reason, model, tokens: [usage.input_tokens + (usage.cache_read_input_tokens ?? 0), usage.output_tokens],
})

// Asks all questions. Each message must be that of a lone request. A question may be a function of the message before.
async function converse(ask, naming, asked = questions, options = {}) {
  const id = randomUUID()
  const [body, headers] = naming(id)
  const messages = []
  const outcomes = []
  for (const [n, question] of asked.entries()) {
    messages.push({ role: 'user', content: typeof question === 'string' ? question : question(messages.at(-1).content) })
    const final = n === asked.length - 1 ? last : {}
    const got = await ask(carryover, { system: system(id), messages, ...options, ...body }, { headers: { ...headers, ...final } })
    const want = await ask(lone, { system: system(id), messages, ...options })
    assert.deepEqual(comparable(got.message), comparable(want.message))
    assert.ok(!('kv_transfer_params' in got.message))
    outcomes.push(got.reuse)
    messages.push({ role: 'assistant', content: got.message.content })
  }
  return { outcomes, messages }
}

const tool = {
  name: 'look_up',
  description: 'Looks up the weather of a place.',
  input_schema: { type: 'object', properties: { place: { type: 'string' }, days: { type: 'integer' } }, required: ['place'] },
}
const order = 'CALL look_up {"place": "Fastnet Rock", "days": 3}'
const weather = 'Gales from the south-west, and rain.'

for (const [how, ask] of Object.entries(ways)) {
  test(`turns after the first hit, ${how}`, async (t) => {
    await warmUp(async () => (await converse(ask, namings.body)).outcomes)
    for (const [what, naming] of Object.entries(namings)) {
      await t.test(what, async () => wantHits((await converse(ask, naming)).outcomes))
    }
  })

  test(`thoughts are sent again, ${how}`, async () => {
    const thinking = { thinking: { type: 'enabled', budget_tokens: 1024 }, max_tokens: 2048 }
    const talk = () => converse(ask, namings.body, questions.map((question) => `THINK ${question}`), thinking)
    await warmUp(async () => (await talk()).outcomes)
    const { outcomes, messages } = await talk()
    wantHits(outcomes)
    for (const { role, content } of messages) {
      if (role === 'assistant') assert.deepEqual(content.map(({ type }) => type), ['thinking', 'text'])
    }
  })

  test(`a tool's call and result hit, ${how}`, async () => {
    const result = ([call]) => {
      assert.equal(call.name, 'look_up')
      assert.deepEqual(call.input, { place: 'Fastnet Rock', days: 3 })
      return [{ type: 'tool_result', tool_use_id: call.id, content: weather }]
    }
    const talk = () => converse(ask, namings["Claude Code's header"], [order, result, 'And what follows from it?'], { tools: [tool] })
    await warmUp(async () => (await talk()).outcomes)
    wantHits((await talk()).outcomes)
  })
}

test("the SDK's own loop over a tool", async () => {
  const tools = [{ ...tool, parse: (input) => input, run: () => weather }]
  const body = { model, max_tokens: 120, system: system('1'), messages: [{ role: 'user', content: order }], tools }
  const loop = (sdk, headers) => sdk.beta.messages.toolRunner(body, { headers })
  const got = await loop(carryover, { 'X-Claude-Code-Session-Id': randomUUID(), ...last })
  const want = await loop(lone)
  assert.equal(got.stop_reason, 'end_turn')
  assert.deepEqual(comparable(got), comparable(want))
})

test('tokens are counted', async () => {
  const body = { model, system: system('1'), messages: [{ role: 'user', content: questions[0] }] }
  const counted = await carryover.messages.countTokens(body)
  assert.equal(counted.input_tokens, (await ways.whole(lone, body)).message.usage.input_tokens)
})

const asked = { model, max_tokens: 120, system: system('1'), messages: [{ role: 'user', content: 'What did you see last night?' }] }

test('errors are those of the SDK', async (t) => {
  for (const [what, row] of Object.entries({
    'bad request': {
      change: { conversation_id: true }, kind: Anthropic.BadRequestError, type: 'invalid_request_error', message: /conversation_id must be a string/,
    },
    'too long for the engine': {
      change: { messages: [{ role: 'user', content: 'And then? '.repeat(15_000) }] }, kind: Anthropic.BadRequestError, message: /context length/,
    },
    'unknown model': { change: { model: 'another' }, kind: Anthropic.NotFoundError, message: /does not exist/ },
    'engines gone': {
      sdk: at(process.env.NOWHERE_URL), kind: Anthropic.InternalServerError, type: 'overloaded_error', message: /engine is available/,
    },
  })) {
    for (const stream of [false, true]) {
      await t.test(`${what}, ${stream ? 'stream' : 'whole'}`, async () => {
        const sdk = row.sdk ?? carryover
        const error = await sdk.messages.create({ ...asked, ...row.change, stream }).then(() => assert.fail('it was answered'), (error) => error)
        assert.ok(error instanceof row.kind, String(error))
        assert.match(error.message, row.message)
        assert.equal(error.error.type, 'error')
        if (row.type) assert.equal(error.error.error.type, row.type)
      })
    }
  }
})

// Node drops what of a body is not read yet when its connection breaks, so that on a busy machine the error event may be lost.
test('a stream that breaks is an error', async () => {
  await fault(decode, { route, kind: 'die_mid_event', events: 5, count: 1 })
  const stream = carryover.messages.stream(asked)
  const seen = []
  stream.on('streamEvent', ({ type }) => seen.push(type))
  const error = await stream.finalMessage().then(() => assert.fail('it ended in order'), (error) => error)
  assert.ok(error instanceof Anthropic.AnthropicError, String(error))
  if (error instanceof Anthropic.APIError && error.error) assert.equal(error.error.error.type, 'api_error')
  assert.ok(seen.includes('content_block_delta') && !seen.includes('message_stop'), seen.join(' '))
})

test('a client leaves in the middle, and the conversation goes on', async () => {
  const headers = { 'X-Claude-Code-Session-Id': randomUUID() }
  const before = await decodeStats()
  await fault(decode, { route, kind: 'slow_stream', delay: 50_000_000, count: 1 })
  const stream = carryover.messages.stream(asked, { headers })
  stream.on('text', () => stream.abort())
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError)
  await stopped(before)
  const got = await ways.whole(carryover, asked, { headers: { ...headers, ...last } })
  const want = await ways.whole(lone, asked)
  assert.deepEqual(comparable(got.message), comparable(want.message))
})
