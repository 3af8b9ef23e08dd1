// The OpenAI SDK for JavaScript against the program with simulated engines.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI from 'openai'
import { ChatCompletionStream } from 'openai/lib/ChatCompletionStream'
import { decode, decodeStats, fault, last, model, newID, prefills, questions, stopped, system, wantHits, warmUp } from './deployment.mjs'

const at = (url, options) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "a client's key", maxRetries: 0, ...options })
const carryover = at(process.env.CARRYOVER_URL)
const lone = at(process.env.LONE_URL)

// The ways to ask. Each returns the message as the SDK has it.
const ways = {
  async whole(sdk, body, options) {
    const { data, response } = await sdk.chat.completions.create({ model, ...body }, options).withResponse()
    const [choice] = data.choices
    return { message: choice.message, finish: choice.finish_reason, usage: data.usage, reuse: response.headers.get('X-KV-Reuse') }
  },
  // The SDK's own helper puts deltas together.
  async stream(sdk, body, options) {
    const asked = { model, stream: true, stream_options: { include_usage: true }, ...body }
    const { data, response } = await sdk.chat.completions.create(asked, options).withResponse()
    const completion = await ChatCompletionStream.fromReadableStream(data.toReadableStream()).finalChatCompletion()
    const [choice] = completion.choices
    return { message: choice.message, finish: choice.finish_reason, usage: completion.usage, reuse: response.headers.get('X-KV-Reuse') }
  },
}

const namings = {
  body: (id) => [{ conversation_id: id }, {}],
  headers: (id) => [{}, { 'X-Conversation-Id': id }],
  metadata: (id) => [{ metadata: { conversation_id: id } }, {}],
}

const counts = ({ prompt_tokens, completion_tokens, total_tokens }) => ({ prompt_tokens, completion_tokens, total_tokens })

// Asks all questions. The text and the usage of each answer must be those of a lone request.
async function converse(ask, naming) {
  const id = newID()
  const [body, headers] = naming(id)
  const messages = [{ role: 'system', content: system(id) }]
  const outcomes = []
  for (const [n, content] of questions.entries()) {
    messages.push({ role: 'user', content })
    const final = n === questions.length - 1 ? last : {}
    const got = await ask(carryover, { messages, max_tokens: 120, ...body }, { headers: { ...headers, ...final } })
    const want = await ask(lone, { messages, max_tokens: 120 })
    assert.ok(got.message.content)
    assert.equal(got.message.content, want.message.content)
    assert.equal(got.finish, want.finish)
    assert.deepEqual(counts(got.usage), counts(want.usage))
    outcomes.push(got.reuse)
    messages.push(got.message)
  }
  return outcomes
}

const tools = [
  {
    type: 'function',
    function: {
      name: 'look_up',
      description: 'Looks up the weather of a place.',
      parameters: { type: 'object', properties: { place: { type: 'string' }, days: { type: 'integer' } }, required: ['place'] },
    },
  },
]

// Asks for a call, gives the tool's result, and asks for more.
async function converseWithTool(ask) {
  const id = newID()
  const messages = [
    { role: 'system', content: system(id) },
    { role: 'user', content: 'CALL look_up {"place": "Fastnet Rock", "days": 3}' },
  ]
  const outcomes = []
  for (const n of [0, 1, 2]) {
    const body = { messages, tools, max_tokens: 120 }
    const got = await ask(carryover, { ...body, conversation_id: id }, { headers: n === 2 ? last : {} })
    const want = await ask(lone, body)
    assert.equal(got.message.content, want.message.content)
    outcomes.push(got.reuse)
    messages.push(got.message)
    if (n === 0) {
      assert.equal(got.finish, 'tool_calls')
      assert.equal(got.message.tool_calls.length, 1)
      const [call] = got.message.tool_calls
      assert.equal(call.function.name, 'look_up')
      assert.equal(call.function.arguments, want.message.tool_calls[0].function.arguments)
      assert.deepEqual(JSON.parse(call.function.arguments), { place: 'Fastnet Rock', days: 3 })
      messages.push({ role: 'tool', tool_call_id: call.id, content: 'Gales from the south-west, and rain.' })
    } else {
      assert.equal(got.finish, 'stop')
      messages.push({ role: 'user', content: 'And what follows from it?' })
    }
  }
  return outcomes
}

for (const [how, ask] of Object.entries(ways)) {
  test(`turns after the first hit, ${how}`, async (t) => {
    await warmUp(() => converse(ask, namings.body))
    for (const [what, naming] of Object.entries(namings)) {
      await t.test(what, async () => wantHits(await converse(ask, naming)))
    }
  })

  test(`a tool's call and result hit, ${how}`, async () => {
    await warmUp(() => converseWithTool(ask))
    wantHits(await converseWithTool(ask))
  })
}

test('reuse is off where it is not wanted', async () => {
  const messages = [{ role: 'user', content: 'SAY Yes.' }]
  for (const [body, headers] of [
    [{ conversation_id: null }, {}],
    [{}, { 'X-Conversation-Id': newID(), 'X-KV-Reuse': 'off' }],
    [{}, { 'X-Conversation-Id': newID(), 'X-Conversation-Task': 'title_generation' }],
  ]) {
    const got = await ways.whole(carryover, { messages, ...body }, { headers })
    assert.equal(got.reuse, 'off')
    assert.equal(got.message.content, 'Yes.')
  }
})

test('models are listed', async () => {
  const names = []
  for await (const one of carryover.models.list()) names.push(one.id)
  assert.deepEqual(names, [model])
})

const asked = { model, messages: [{ role: 'system', content: system('1') }, { role: 'user', content: 'What did you see last night?' }] }

test('errors are those of the SDK', async (t) => {
  const told = ({ status, type, param, code }) => ({ status, type, param, code })
  for (const [what, row] of Object.entries({
    'bad request': {
      change: { conversation_id: true }, kind: OpenAI.BadRequestError, message: /conversation_id must be a string/,
      want: { status: 400, type: 'invalid_request_error', param: 'conversation_id', code: 'invalid_conversation_id' },
    },
    'too long for the engine': {
      change: { messages: [{ role: 'user', content: 'And then? '.repeat(15_000) }] }, kind: OpenAI.BadRequestError, message: /context length/,
      want: { status: 400, type: 'BadRequestError', param: 'input_tokens', code: 'invalid_request' },
    },
    'unknown model': {
      change: { model: 'another' }, kind: OpenAI.NotFoundError, message: /does not exist/,
      want: { status: 404, type: 'NotFoundError', param: 'model', code: 'model_not_found' },
    },
    'engines gone': {
      sdk: at(process.env.NOWHERE_URL), kind: OpenAI.InternalServerError, message: /engine is available/,
      want: { status: 503, type: 'server_error', param: null, code: 'decode_unavailable' },
    },
  })) {
    for (const stream of [false, true]) {
      await t.test(`${what}, ${stream ? 'stream' : 'whole'}`, async () => {
        const id = newID()
        const sdk = row.sdk ?? carryover
        const error = await sdk.chat.completions
          .create({ ...asked, ...row.change, stream }, { headers: { 'X-Request-Id': id } })
          .then(() => assert.fail('it was answered'), (error) => error)
        assert.ok(error instanceof row.kind, String(error))
        assert.deepEqual(told(error), row.want)
        assert.match(error.message, row.message)
        assert.equal(error.requestID, id)
      })
    }
  }
})

test('the SDK tries again what can be tried again', async () => {
  for (const url of prefills) await fault(url, { kind: 'status', status: 429, retry_after: '0', count: 1 })
  const completion = await carryover.chat.completions.create(asked, { maxRetries: 2 })
  assert.ok(completion.choices[0].message.content)
})

// Node drops what of a body is not read yet when its connection breaks, so that on a busy machine the error event may be lost.
test('a stream that breaks is an error', async () => {
  await fault(decode, { kind: 'die_mid_event', events: 5, count: 1 })
  let seen = 0
  const error = await (async () => {
    for await (const _ of await carryover.chat.completions.create({ ...asked, stream: true })) seen++
  })().then(() => assert.fail('it ended in order'), (error) => error)
  assert.ok(!(error instanceof assert.AssertionError), String(error))
  if (error instanceof OpenAI.APIError && error.code) assert.equal(error.code, 'decode_failed')
  assert.ok(seen > 1)
})

test('a client leaves in the middle, and the conversation goes on', async (t) => {
  for (const [how, leave] of Object.entries({
    'by its signal': async (body, signal, abort) => {
      const reading = (async () => {
        for await (const _ of await carryover.chat.completions.create(body, { signal })) abort()
      })()
      await reading.catch((error) => assert.ok(error instanceof OpenAI.APIUserAbortError, String(error)))
    },
    'by leaving its loop': async (body) => {
      for await (const _ of await carryover.chat.completions.create(body)) break
    },
  })) {
    await t.test(how, async () => {
      const conversation_id = newID()
      const before = await decodeStats()
      await fault(decode, { kind: 'slow_stream', delay: 50_000_000, count: 1 })
      const control = new AbortController()
      await leave({ ...asked, conversation_id, stream: true }, control.signal, () => control.abort())
      await stopped(before)
      const got = await ways.whole(carryover, { ...asked, conversation_id }, { headers: last })
      const want = await ways.whole(lone, asked)
      assert.equal(got.message.content, want.message.content)
    })
  }
})
