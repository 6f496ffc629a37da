/** Processes of repository agents that do not do what they should: shell scripts in the place of the program. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { afterAll, expect, test } from 'vitest'
import { eachLine, logLines, readAnswer, type AgentAnswer } from '../../src/repository/agent_lines.js'
import { AgentProcess } from '../../src/repository/agent_process.js'
import { ServerError } from '../../src/native/index.js'
import { random } from '../config/helpers.js'

const ROOT = mkdtempSync(join(tmpdir(), 'nereid-agent-process-'))
afterAll(() => rmSync(ROOT, { recursive: true }))

/** Asks a process that runs these lines of a shell; 3 is its socket. */
async function asked(script: string, program = '/bin/sh'): Promise<unknown> {
  const library = join(ROOT, 'script.sh')
  writeFileSync(library, script)
  const host = { program, library, environment: { PATH: '/bin:/usr/bin' }, user: null, missing: null }
  const ms = { open: 400, act: 400, close: 400 }
  const agent = new AgentProcess('a', 'libtritonrepoagent_a.so', host, () => {}, ms)
  try {
    return await agent.ask('open', {})
  } finally {
    await agent.ended(1000)
  }
}

/** A process that answers its first question, which has number 1, with this text. */
const answering = async (text: string): Promise<unknown> =>
  asked(`read question <&3; printf '%s\\n' '${text}' >&3; read question <&3`)

test('an answer is an object with the number of the question', async () => {
  await expect(answering('{"id":1,"location":"/x"}')).resolves.toMatchObject({ location: '/x' })
  await expect(answering('{"id":1,"location":"/x","error":null}')).resolves.toMatchObject({ location: '/x' })
  await expect(answering('{"id":1,"error":{"code":"NOT_FOUND","message":"m"}}')).rejects.toMatchObject({
    code: 'NOT_FOUND',
    message: 'm',
  })
})

test('what is no answer ends the process, and not the server', async () => {
  const others = [
    'null',
    '7',
    '[1]',
    'text',
    '{}',
    '{"id":"1"}',
    '{"id":2}',
    '{"id":1,"error":7}',
    '{"id":1,"error":{}}',
    '{"id":1,"error":{"code":1,"message":"m"}}',
    '{"id":1,"error":{"code":"INTERNAL"}}',
  ]
  for (const text of others) {
    const message = "the process of repository agent 'a' ended: its message is not a valid response"
    await expect(answering(text), text).rejects.toMatchObject({ code: 'UNAVAILABLE', message })
  }
})

test('a process that is silent, too loud, or not there is no longer waited for', async () => {
  await expect(asked('exec sleep 10')).rejects.toThrow(/ended: no response in 0.4 s$/)
  await expect(asked('head -c 1100000 /dev/zero >&3; echo >&3; exec sleep 10')).rejects.toThrow(/not a valid response$/)
  await expect(asked('exit 7')).rejects.toThrow(/ended: status 7$/)
  await expect(asked('', join(ROOT, 'no-such-program'))).rejects.toThrow(/ENOENT/)
})

test('what a process prints is logged at a limited rate', async () => {
  const lines: string[] = []
  let ms = 0
  const stream = new PassThrough()
  logLines(
    [stream],
    (line) => lines.push(line),
    () => ms,
  )
  const print = async (text: string): Promise<void> => {
    stream.write(text)
    await new Promise(setImmediate)
  }
  await print('first\n')
  await print('x\n'.repeat(5000))
  const atFirst = lines.length
  expect(lines[0]).toBe('first')
  expect(atFirst).toBeLessThan(1100)
  ms = 1000
  await print('later\n')
  expect(lines.slice(atFirst)).toEqual([
    `${5001 - atFirst} lines were dropped: more than 65536 characters in a second`,
    'later',
  ])
})

/** Reads a socket that gets these pieces: an answer for each line, or null for a line that is none. */
async function read(pieces: readonly Buffer[]): Promise<(AgentAnswer | null)[]> {
  const answers: (AgentAnswer | null)[] = []
  const socket = new PassThrough()
  eachLine(socket, 200, (line, isCut) => answers.push(isCut ? null : readAnswer(line)))
  for (const piece of pieces) {
    socket.write(piece)
    // Each piece is an event of its own.
    await new Promise(setImmediate)
  }
  socket.end()
  await new Promise((done) => socket.once('end', done))
  return answers
}

test('any bytes of a process are read as answers or as none, whole or in pieces', async () => {
  const lines = [
    '{"id":1,"remote":false,"location":"/models/é😀"}',
    '{"id":2,"error":{"code":"NOT_FOUND","message":"m\\n"}}',
    '{"id":1e999,"error":null}',
    `{"id":3,"location":"${'x'.repeat(190)}"}`,
    '{"__proto__":{"id":1}}',
    '',
    '[[{}]]',
  ]
  let [answered, refused] = [0, 0]
  for (let seed = 1; seed <= 1500; seed++) {
    const r = random(seed)
    const below = (n: number): number => Math.floor(r() * n)
    const bytes = Buffer.from(Array.from({ length: 1 + below(4) }, () => `${lines[below(lines.length)]}\n`).join(''))
    for (let damaged = below(4); damaged > 0; damaged--) bytes[below(bytes.length)] = below(3) === 0 ? 10 : below(256)
    const from = below(bytes.length)
    const sent = below(3) === 0 ? bytes.subarray(from) : bytes
    const [a, b] = [below(sent.length), below(sent.length)].sort((x, y) => x - y) as [number, number]
    const whole = await read([sent])
    const pieces = await read([sent.subarray(0, a), sent.subarray(a, b), sent.subarray(b)])
    expect(pieces, `seed ${seed}`).toEqual(whole)
    for (const answer of whole) {
      if (answer === null) refused++
      else {
        answered++
        expect(typeof answer.id).toBe('number')
        if (answer.error !== null) expect(answer.error).toBeInstanceOf(ServerError)
      }
    }
  }
  expect(answered).toBeGreaterThan(500)
  expect(refused).toBeGreaterThan(500)
}, 60_000)
