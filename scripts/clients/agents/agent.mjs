// An agent's program in a home of its own, against the program with simulated engines, and the records of its turns.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

// Nothing but loopback is spoken to: whatever else an agent wants to reach goes to a proxy that is not there.
const nowhere = 'http://127.0.0.1:9'

const only = { PATH: process.env.PATH, NO_PROXY: '127.0.0.1', HTTP_PROXY: nowhere, HTTPS_PROXY: nowhere, ALL_PROXY: nowhere, TERM: 'dumb' }

export const told = 'Gales from the south-west, and rain.'

// workplace makes a home and a folder to work in, which has one file. Nothing of the environment that this runs in is in its env.
export async function workplace(t, env) {
  const base = await mkdtemp(join(tmpdir(), 'carryover-agent-'))
  t.after(() => rm(base, { recursive: true, force: true, maxRetries: 5 }))
  const place = { home: join(base, 'home'), work: join(base, 'work'), file: join(base, 'work', 'weather.txt') }
  await mkdir(place.home)
  await mkdir(place.work)
  await writeFile(place.file, `${told}\n`)
  place.env = { ...only, HOME: place.home, ...env(place) }
  return place
}

// run returns what the command prints, and wants it to fail or not. It reads an empty standard input.
export async function run(place, env, command, args, fails = false) {
  const running = promisify(execFile)(command, args, { cwd: place.work, env: { ...place.env, ...env }, timeout: 60_000, maxBuffer: 1 << 24 })
  running.child.stdin.end()
  const ended = await running.catch((error) => error)
  assert.ok(fails ? ended.code > 0 : !ended.code && !ended.killed, `${ended.message}\n${ended.stdout}\n${ended.stderr}`)
  return ended.stdout
}

// fault sets a fault of a simulated engine.
export async function fault(url, fault) {
  assert.equal((await fetch(`${url}/_sim/faults`, { method: 'POST', body: JSON.stringify(fault) })).status, 200)
}

const served = async () => (await (await fetch(`${process.env.ADMIN_URL}/admin/turns?limit=4096`)).json()).turns

// records returns what act returns, and the records of the turns that were served meanwhile, in order.
export async function records(act) {
  const before = new Set((await served()).map(({ turn }) => turn))
  const result = await act()
  return [result, (await served()).filter(({ turn }) => !before.has(turn)).reverse()]
}

// outcomes of records, in a word each.
export const outcomes = (turns) => turns.map(({ outcome, reason }) => (reason && outcome !== 'hit' ? `${outcome}, ${reason}` : outcome))

// warmUp repeats a session until it reuses KV twice in a row: each prefill instance has to see each shape of request once first.
export async function warmUp(session) {
  const end = Date.now() + 60_000
  let row = 0
  while (row < 2) {
    const [, turns] = await records(session)
    const seen = outcomes(turns)
    row = seen.slice(1).every((outcome) => outcome === 'hit') ? row + 1 : 0
    assert.ok(Date.now() < end, `waited in vain until turns reuse KV: ${seen.join('; ')}`)
  }
}
