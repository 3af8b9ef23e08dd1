// The AI SDK with its provider for OpenAI-compatible servers against the program with simulated engines.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateText, isStepCount, jsonSchema, streamText, tool } from 'ai'
import { decode, decodeStats, fault, last, model, newID, prefills, questions, stopped, system, wantHits, warmUp } from './deployment.mjs'

const at = (url) => createOpenAICompatible({ name: 'carryover', baseURL: `${url}/v1`, apiKey: "a client's key", includeUsage: true })(model)
const carryover = at(process.env.CARRYOVER_URL)
const lone = at(process.env.LONE_URL)

// The ways to ask. Each returns what both have in common.
const ways = {
  async whole(options) {
    const result = await generateText({ maxRetries: 0, maxOutputTokens: 120, ...options })
    return said(result.text, result.steps, result.response.messages, result.finishReason)
  },
  async stream(options) {
    const result = streamText({ maxRetries: 0, maxOutputTokens: 120, onError: () => {}, ...options })
    await result.consumeStream()
    return said(await result.text, await result.steps, (await result.response).messages, await result.finishReason)
  },
}

// The AI SDK makes the names of headers lower case.
const said = (text, steps, messages, finish) => ({
  text, messages, finish, steps, reuses: steps.map((step) => step.response.headers['x-kv-reuse']),
})

const namings = {
  providerOptions: (id) => ({ providerOptions: { carryover: { conversation_id: id } } }),
  headers: (id) => ({ headers: { 'X-Conversation-Id': id } }),
}

const counts = ({ steps }) => steps.map(({ usage }) => [usage.inputTokens, usage.outputTokens, usage.totalTokens])

// Asks all questions. The text and the usage of each answer must be those of a lone request.
async function converse(ask, naming) {
  const id = newID()
  const named = naming(id)
  const messages = []
  const outcomes = []
  for (const [n, content] of questions.entries()) {
    messages.push({ role: 'user', content })
    const headers = { ...named.headers, ...(n === questions.length - 1 ? last : {}) }
    const body = { system: system(id), messages: [...messages] }
    const got = await ask({ model: carryover, ...body, ...named, headers })
    const want = await ask({ model: lone, ...body })
    assert.ok(got.text)
    assert.equal(got.text, want.text)
    assert.equal(got.finish, 'stop')
    assert.ok(got.steps[0].usage.inputTokens > 0)
    assert.deepEqual(counts(got), counts(want))
    outcomes.push(...got.reuses)
    messages.push(...got.messages)
  }
  return outcomes
}

// The SDK calls the tool and asks again by itself; each of its steps is a turn.
async function converseWithTool(ask) {
  const id = newID()
  const calls = []
  const tools = {
    look_up: tool({
      description: 'Looks up the weather of a place.',
      inputSchema: jsonSchema({
        type: 'object', properties: { place: { type: 'string' }, days: { type: 'integer' } }, required: ['place'],
      }),
      execute: async (input) => {
        calls.push(input)
        return 'Gales from the south-west, and rain.'
      },
    }),
  }
  const messages = [{ role: 'user', content: 'CALL look_up {"place": "Fastnet Rock", "days": 3}' }]
  const options = { model: carryover, system: system(id), tools, providerOptions: { carryover: { conversation_id: id } }, stopWhen: isStepCount(3) }
  const first = await ask({ ...options, messages: [...messages] })
  assert.deepEqual(calls, [{ place: 'Fastnet Rock', days: 3 }])
  assert.deepEqual(first.steps.map((step) => step.finishReason), ['tool-calls', 'stop'])
  messages.push(...first.messages, { role: 'user', content: 'And what follows from it?' })
  const second = await ask({ ...options, headers: last, messages: [...messages] })
  const want = await ask({ model: lone, system: system(id), tools, messages: [...messages] })
  assert.ok(second.text)
  assert.equal(second.text, want.text)
  return [...first.reuses, ...second.reuses]
}

for (const [how, ask] of Object.entries(ways)) {
  test(`turns after the first hit, ${how}`, async (t) => {
    await warmUp(() => converse(ask, namings.providerOptions))
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
  for (const options of [
    { providerOptions: { carryover: { conversation_id: null } } },
    { headers: { 'X-Conversation-Id': newID(), 'X-Conversation-Task': 'title_generation' } },
  ]) {
    const got = await ways.whole({ model: carryover, prompt: 'SAY Yes.', ...options })
    assert.deepEqual(got.reuses, ['off'])
    assert.equal(got.text, 'Yes.')
  }
})

const asked = { system: system('1'), prompt: 'What did you see last night?' }

test('errors are those of the SDK', async (t) => {
  for (const [what, row] of Object.entries({
    'bad request': {
      options: { providerOptions: { carryover: { conversation_id: true } } }, again: false, message: /conversation_id must be a string/,
      want: { status: 400, type: 'invalid_request_error', param: 'conversation_id', code: 'invalid_conversation_id' },
    },
    'too long for the engine': {
      options: { prompt: 'And then? '.repeat(15_000) }, again: false, message: /context length/,
      want: { status: 400, type: 'BadRequestError', param: 'input_tokens', code: 'invalid_request' },
    },
    'engines gone': {
      options: { model: at(process.env.NOWHERE_URL) }, again: true, message: /engine is available/,
      want: { status: 503, type: 'server_error', param: null, code: 'decode_unavailable' },
    },
  })) {
    await t.test(`${what}, whole`, async () => {
      const id = newID()
      const error = await generateText({ model: carryover, maxRetries: 0, headers: { 'X-Request-Id': id }, ...asked, ...row.options }).then(
        () => assert.fail('it was answered'),
        (error) => error,
      )
      wantCallError(error, row, id)
    })
    await t.test(`${what}, stream`, async () => {
      const id = newID()
      let error
      const result = streamText({
        model: carryover, maxRetries: 0, headers: { 'X-Request-Id': id }, ...asked, ...row.options,
        onError: (event) => { error = event.error },
      })
      await result.consumeStream()
      wantCallError(error, row, id)
    })
  }
})

function wantCallError(error, { want, message, again }, id) {
  assert.ok(APICallError.isInstance(error), String(error))
  const { type, param, code } = error.data.error
  assert.deepEqual({ status: error.statusCode, type, param, code }, want)
  assert.match(error.message, message)
  assert.equal(error.isRetryable, again)
  assert.equal(error.responseHeaders['x-request-id'], id)
}

test('the SDK tries again what can be tried again', async () => {
  for (const url of prefills) await fault(url, { kind: 'status', status: 429, retry_after: '0', count: 1 })
  const { text } = await generateText({ model: carryover, maxRetries: 2, ...asked })
  assert.ok(text)
})

// The error event comes as a part; the connection that is aborted behind it is thrown. Node drops what of a body is not read yet when
// its connection breaks, so that on a busy machine the event may be lost.
test('a stream that breaks is an error', async () => {
  await fault(decode, { kind: 'die_mid_event', events: 5, count: 1 })
  const parts = []
  await assert.rejects(async () => {
    for await (const part of streamText({ model: carryover, maxRetries: 0, onError: () => {}, ...asked }).fullStream) parts.push(part)
  })
  for (const { error } of parts.filter((part) => part.type === 'error')) assert.match(error.message, /decode engine failed/)
  assert.ok(parts.some((part) => part.type === 'text-delta'))
  assert.ok(!parts.some((part) => part.type === 'finish'))
})

test('a client leaves in the middle, and the conversation goes on', async () => {
  const named = { providerOptions: { carryover: { conversation_id: newID() } } }
  const before = await decodeStats()
  await fault(decode, { kind: 'slow_stream', delay: 50_000_000, count: 1 })
  const control = new AbortController()
  const result = streamText({ model: carryover, maxRetries: 0, abortSignal: control.signal, onError: () => {}, ...asked, ...named })
  const types = []
  for await (const part of result.fullStream) {
    types.push(part.type)
    if (part.type === 'text-delta') control.abort()
  }
  assert.ok(types.includes('abort'), types.join(' '))
  await stopped(before)
  const got = await ways.whole({ model: carryover, ...asked, ...named, headers: last })
  const want = await ways.whole({ model: lone, ...asked })
  assert.equal(got.text, want.text)
})
