// The Responses API of the OpenAI SDK for JavaScript against the program with simulated engines.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI from 'openai'
import { decode, decodeStats, fault, last, model, newID, questions, stopped, system, wantHits, warmUp } from './deployment.mjs'

const route = '/v1/responses'

const at = (url, options) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "a client's key", maxRetries: 0, ...options })
const carryover = at(process.env.CARRYOVER_URL)
const lone = at(process.env.LONE_URL)

const asked = { model, store: false, input: [{ role: 'user', content: 'What did you see last night?' }] }

// The ways to ask. Each returns the response as the SDK has it.
const ways = {
  async whole(sdk, body, options) {
    const { data, response } = await sdk.responses.create({ ...asked, ...body }, options).withResponse()
    return { response: data, reuse: response.headers.get('X-KV-Reuse') }
  },
  // The SDK's own helper puts events together. It does not show headers.
  async stream(sdk, body, options) {
    let headers
    const seeing = sdk.withOptions({ fetch: async (...request) => {
      const answer = await fetch(...request)
      headers = answer.headers
      return answer
    } })
    const stream = seeing.responses.stream({ ...asked, ...body }, options)
    const numbers = []
    for await (const event of stream) numbers.push(event.sequence_number)
    assert.deepEqual(numbers, [...numbers.keys()])
    return { response: await stream.finalResponse(), reuse: headers.get('X-KV-Reuse') }
  },
}

const namings = {
  prompt_cache_key: (id) => [{ prompt_cache_key: id }, {}],
  "Codex's headers": (id) => [{}, { 'session-id': id, 'thread-id': id }],
  body: (id) => [{ conversation_id: id }, {}],
}

// What two answers to one prompt have in common: ids of items and of calls are drawn.
const comparable = ({ output, status, model, usage }) => ({
  output: output.map(({ type, content, name, arguments: given }) => [type, content?.map(({ text }) => text), name, given]),
  status, model, tokens: [usage.input_tokens, usage.output_tokens],
})

// Asks all questions. Each response must be that of a lone request. A question may be a function of the output before.
async function converse(ask, naming, asking = questions, options = {}) {
  const id = newID()
  const [body, headers] = naming(id)
  const input = [{ role: 'system', content: system(id) }]
  const outcomes = []
  let output
  for (const [n, question] of asking.entries()) {
    input.push(typeof question === 'string' ? { role: 'user', content: question } : question(output))
    const final = n === asking.length - 1 ? last : {}
    const got = await ask(carryover, { input, ...options, ...body }, { headers: { ...headers, ...final } })
    const want = await ask(lone, { input, ...options })
    assert.deepEqual(comparable(got.response), comparable(want.response))
    for (const hidden of ['kv_transfer_params', 'input_messages', 'output_messages']) assert.equal(got.response[hidden] ?? null, null)
    outcomes.push(got.reuse)
    output = got.response.output
    // The helper adds what it has parsed to items, which is not for the API.
    input.push(...output.map(({ parsed_arguments: _, ...item }) => item))
  }
  return outcomes
}

const tools = [
  {
    type: 'function',
    name: 'look_up',
    description: 'Looks up the weather of a place.',
    strict: false,
    parameters: { type: 'object', properties: { place: { type: 'string' }, days: { type: 'integer' } }, required: ['place'] },
  },
]

for (const [how, ask] of Object.entries(ways)) {
  test(`turns after the first hit, ${how}`, async (t) => {
    await warmUp(() => converse(ask, namings.body))
    for (const [what, naming] of Object.entries(namings)) {
      await t.test(what, async () => wantHits(await converse(ask, naming)))
    }
  })

  test(`a tool's call and result hit, ${how}`, async () => {
    const result = ([call]) => {
      assert.equal(call.name, 'look_up')
      assert.deepEqual(JSON.parse(call.arguments), { place: 'Fastnet Rock', days: 3 })
      return { type: 'function_call_output', call_id: call.call_id, output: 'Gales from the south-west, and rain.' }
    }
    const asking = ['CALL look_up {"place": "Fastnet Rock", "days": 3}', result, 'And what follows from it?']
    const talk = () => converse(ask, namings.prompt_cache_key, asking, { tools })
    await warmUp(talk)
    wantHits(await talk())
  })
}

test('errors are those of the SDK', async (t) => {
  for (const [what, row] of Object.entries({
    'an earlier response': { change: { previous_response_id: 'resp_1' }, kind: OpenAI.BadRequestError, param: 'previous_response_id' },
    'a conversation': { change: { conversation: 'conv_1' }, kind: OpenAI.BadRequestError, param: 'conversation' },
    'in the background': { change: { background: true }, kind: OpenAI.BadRequestError, param: 'background' },
    'bad request': { change: { conversation_id: true }, kind: OpenAI.BadRequestError, param: 'conversation_id' },
    'unknown model': { change: { model: 'another' }, kind: OpenAI.NotFoundError, param: 'model' },
    'engines gone': { sdk: at(process.env.NOWHERE_URL), kind: OpenAI.InternalServerError, param: null },
  })) {
    for (const stream of [false, true]) {
      await t.test(`${what}, ${stream ? 'stream' : 'whole'}`, async () => {
        const sdk = row.sdk ?? carryover
        const error = await sdk.responses.create({ ...asked, ...row.change, stream }).then(() => assert.fail('it was answered'), (error) => error)
        assert.ok(error instanceof row.kind, String(error))
        assert.equal(error.param, row.param)
        assert.ok(error.requestID)
      })
    }
  }
})

// Node drops what of a body is not read yet when its connection breaks, so that on a busy machine the error event may be lost.
test('a stream that breaks is an error', async () => {
  await fault(decode, { route, kind: 'die_mid_event', events: 7, count: 1 })
  const seen = []
  await assert.rejects(async () => {
    for await (const event of await carryover.responses.create({ ...asked, stream: true })) seen.push(event)
  })
  assert.ok(seen.some(({ type }) => type === 'response.output_text.delta'))
  assert.ok(!seen.some(({ type }) => type === 'response.completed'))
  if (seen.at(-1).type === 'error') assert.equal(seen.at(-1).code, 'decode_failed')
})

test('a client leaves in the middle, and the conversation goes on', async () => {
  const prompt_cache_key = newID()
  const before = await decodeStats()
  await fault(decode, { route, kind: 'slow_stream', delay: 50_000_000, count: 1 })
  for await (const event of await carryover.responses.create({ ...asked, prompt_cache_key, stream: true })) {
    if (event.type === 'response.output_text.delta') break
  }
  await stopped(before)
  const got = await ways.whole(carryover, { prompt_cache_key }, { headers: last })
  const want = await ways.whole(lone)
  assert.deepEqual(comparable(got.response), comparable(want.response))
})
