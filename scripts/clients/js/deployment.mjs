// What the suites know of the program and of the simulated engines behind it. scripts/clients/run starts them.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

export const model = 'sim'
export const decode = process.env.DECODE_URL
export const prefills = (process.env.PREFILL_URLS ?? '').split(' ')

export const questions = [
  'What did you see last night from the gallery, of the ships, of the weather and of the birds that rest there?',
  'And which of it did you write down?',
  'Who is going to read it?',
]

export const last = { 'X-Conversation-Final': 'true' }

export const newID = () => `js-${randomUUID()}`

// Opens a conversation as no other: of what prefill has computed for another, it would read nothing.
export const system = (id) =>
  `You keep log ${id} of a lighthouse on an island far out at sea. You answer in whole sentences, and briefly.`

// Sets a fault of a simulated engine, for requests of the chat route: legs that release tickets take the other.
export async function fault(url, fault) {
  const answer = await fetch(`${url}/_sim/faults`, { method: 'POST', body: JSON.stringify({ route: '/v1/chat', ...fault }) })
  assert.equal(answer.status, 200)
}

export const decodeStats = async () => (await fetch(`${decode}/_sim/stats`)).json()

// Asks again until it holds, for a minute.
export async function until(what, holds) {
  const end = Date.now() + 60_000
  while (!(await holds())) assert.ok(Date.now() < end, `waited in vain until ${what}`)
}

// Repeats a conversation until two in a row reuse KV: each prefill instance has to see each shape of request once first.
// converse holds one under a fresh id and returns the X-KV-Reuse of its turns.
export async function warmUp(converse) {
  const hits = async () => (await converse()).slice(1).every((reuse) => reuse.startsWith('hit;'))
  await until('turns reuse KV', async () => (await hits()) && (await hits()))
}

// Checks that all turns but the first have reused KV.
export function wantHits(outcomes) {
  assert.match(outcomes[0], /^(miss|prefix;tokens=\d+);reason=first_turn$/)
  for (const outcome of outcomes.slice(1)) assert.match(outcome, /^hit;tokens=\d+;read=\d+;age=\d+\.\d;proof=tokens;confirmed=\d+(;reason=\w+)?(;differs=.+)?$/)
}

// Waits until decode has stopped a request since before, and runs none.
export const stopped = (before) =>
  until('decode has stopped', async () => {
    const now = await decodeStats()
    return now.aborts > before.aborts && now.running === 0
  })
