// Conversations by which nothing tells an id, with the kit that is named: node unnamed.mjs KIT. Each is held as the kit's own pages show it,
// streamed and whole. Every answer must be that of a lone engine. What was reused is in the records of the program, which scripts/clients
// looks at (unnamed.go).
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText } from 'ai'
import OpenAI from 'openai'
import { model, newID, questions, system } from './deployment.mjs'

const key = "a client's key"

// Each returns how to ask a question within one conversation.
const kits = {
  openai(url, system) {
    const sdk = new OpenAI({ baseURL: `${url}/v1`, apiKey: key })
    const messages = [{ role: 'system', content: system }]
    return async (content, stream) => {
      messages.push({ role: 'user', content })
      const completion = stream
        ? await sdk.chat.completions.stream({ model, messages }).finalChatCompletion()
        : await sdk.chat.completions.create({ model, messages })
      messages.push(completion.choices[0].message)
      return completion.choices[0].message.content
    }
  },
  anthropic(url, system) {
    const sdk = new Anthropic({ baseURL: url, authToken: key, apiKey: null })
    const messages = []
    return async (content, stream) => {
      messages.push({ role: 'user', content })
      const asked = { model, max_tokens: 120, system, messages }
      const message = stream ? await sdk.messages.stream(asked).finalMessage() : await sdk.messages.create(asked)
      messages.push({ role: 'assistant', content: message.content })
      return message.content.map(({ text }) => text ?? '').join('')
    }
  },
  'ai-sdk'(url, system) {
    const asked = createOpenAICompatible({ name: 'carryover', baseURL: `${url}/v1`, apiKey: key })(model)
    const messages = []
    return async (content, stream) => {
      messages.push({ role: 'user', content })
      const options = { model: asked, system, messages: [...messages] }
      const result = stream ? streamText(options) : await generateText(options)
      if (stream) await result.consumeStream()
      messages.push(...(await result.response).messages)
      return result.text
    }
  },
}

const kit = kits[process.argv[2]]
for (const stream of [true, false]) {
  const opening = system(newID())
  const [served, alone] = [process.env.CARRYOVER_URL, process.env.LONE_URL].map((url) => kit(url, opening))
  const [first, ...others] = questions
  for (const question of [`${first} (stream ${stream})`, ...others, 'Where is it kept?']) { // the first names the conversation
    const got = await served(question, stream)
    assert.ok(got)
    assert.equal(got, await alone(question, stream))
  }
}
