// `nereid key`: new keys, their stored hashes, and files that stay unchanged after an error.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { describe, expect, test, vi } from 'vitest'
import * as key from '../../src/tools/key/index.js'
import { files, runs } from './harness.js'

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

interface File {
  anonymous?: unknown
  keys: { name: string; sha256: string; scopes: unknown; quota?: unknown; expires?: string }[]
}
const read = (path: string): File => JSON.parse(readFileSync(path, 'utf8')) as File

describe('a key that is made', () => {
  test('is printed alone; the file, readable only by its owner, has its hash', async () => {
    const directory = files({})
    const path = join(directory, 'keys.json')
    const { code, out, err } = await runs(
      key,
      [path, '--name=ci', '--scope=inference,metadata:read:resnet*,bert', '--scope', 'health'],
      directory,
    )
    expect({ code, err }).toEqual({
      code: 0,
      err: "./keys.json has the hash of the key 'ci'; the key itself is shown only here\n",
    })
    expect(out).toMatch(/^nk_[\w-]{43}\n$/)
    expect(read(path)).toEqual({
      keys: [
        {
          name: 'ci',
          sha256: sha256(out.trim()),
          scopes: [{ verbs: ['inference', 'metadata:read'], models: ['resnet*', 'bert'] }, { verbs: ['health'] }],
        },
      ],
    })
    expect(readFileSync(path, 'utf8')).not.toContain(out.trim())
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  test('is appended after existing ones, and the rest of the file stays', async () => {
    const anonymous = { scopes: [{ verbs: ['all'] }] }
    const directory = files({ 'keys.json': JSON.stringify({ anonymous, keys: [] }) })
    const path = join(directory, 'keys.json')
    for (const name of ['a', 'b'])
      expect(
        (await runs(key, [path, `--name=${name}`, '--scope=all', '--concurrency=8', '--expires=2027-01-31'])).code,
      ).toBe(0)
    const { keys, anonymous: kept } = read(path)
    expect(kept).toEqual(anonymous)
    expect(keys.map(({ name }) => name)).toEqual(['a', 'b'])
    expect(keys[1]).toMatchObject({ quota: { concurrency: 8 }, expires: '2027-01-31' })
    expect(keys[0]?.sha256).not.toBe(keys[1]?.sha256)
  })

  test('is in no file without one: the entry is printed, and the key apart from it', async () => {
    const { code, out, err } = await runs(key, ['--name=ci', '--scope=all', '--expires=30d'])
    expect(code).toBe(0)
    const entry = JSON.parse(out) as File['keys'][0]
    expect(entry.sha256).toBe(sha256(err.trim()))
    expect(Date.parse(entry.expires ?? '') - Date.now()).toBeGreaterThan(29 * 86_400_000)
  })
})

describe('mistakes', () => {
  test.each([
    [['--scope=all'], 'a key needs a name'],
    [['--name=ci'], 'a key needs a scope'],
    [['--name=ci', '--scope=Infer'], 'a scope is written as VERBS or VERBS:MODELS'],
    [['--name=ci', '--scope=infer'], 'error: scopes[0].verbs[0]: a verb is one of all, health'],
    [['--name=a b', '--scope=all'], 'error: name: a name has 1 to 64 letters'],
    [['--name=ci', '--scope=all', '--concurrency=0'], 'error: quota: concurrency is 1 to 1000000'],
    [['--name=ci', '--scope=all', '--burst=lots'], '--burst takes a number'],
    [['--name=ci', '--scope=all', '--expires=soon'], 'error: --expires: a time is written as'],
    [['--name=ci', '--scope=all', '--expires=yesterday'], 'or as 90d from now'],
    [
      ['--name=ci', '--scope=all', '--expires=2020-01-01'],
      'error: --expires: the key would have ended at 2020-01-01T00:00:00Z; a time is written as 2027-01-31 ' +
        'or 2027-01-31T12:00:00Z, in UTC, or as 90d from now',
    ],
    [['--name=ci', '--scope=all', '--expires=0d'], 'the key would have ended at'],
    [['--name=ci', '--scope=health,infer:read'], "; did you mean 'inference'?\n"],
    [['--name=ci', '--scope=all', '--scope=shared_memory'], "; did you mean 'shared-memory'?\n"],
    [['--name=ci', '--scope=model'], "followed by ':read'\n"],
    [['--name=ci', '--scope=all', '--concurrency=-1'], 'error: quota: concurrency is 1 to 1000000, a whole number\n'],
    [
      ['--name=ci', '--scope=all', '--concurrency=5000000000'],
      'error: quota: concurrency is 1 to 1000000, a whole number\n',
    ],
    [
      ['--name=ci', '--scope=all', '--bytes-per-second=1.5'],
      'error: quota: bytes_per_second is 1 to 1000000000000, a whole number\n',
    ],
    [['--name=old', '--scope=all'], /^error: the name 'old' stands in \S*keys\.json already\n$/],
  ])('%j is reported, and the file stays', async (args, text) => {
    const before = JSON.stringify({ keys: [{ name: 'old', sha256: sha256('x'), scopes: [] }] })
    const directory = files({ 'keys.json': before })
    const path = join(directory, 'keys.json')
    const { code, out, err } = await runs(key, [path, ...args])
    expect(code).toBe(1)
    expect(out).toBe('')
    if (typeof text === 'string') expect(err).toContain(text)
    else expect(err).toMatch(text)
    expect(readFileSync(path, 'utf8')).toBe(before)
  })

  test.each([
    ['all:red', "the scope 'all:red' is for the model 'red', to read and to change; did you mean 'all:read'?"],
    ['inference,trace:reads', "did you mean 'inference,trace:read'?"],
  ])('the scope %s is taken, with a word of what was made', async (scope, text) => {
    const path = join(files({}), 'keys.json')
    const { code, err } = await runs(key, [path, '--name=ci', `--scope=${scope}`])
    expect(code).toBe(0)
    expect(err).toMatch(/^warning: /)
    expect(err).toContain(text)
    expect(read(path).keys).toHaveLength(1)
  })

  test.each(['all:read', 'all:read:red', 'inference:roads', 'all:red,blue', 'inference:re*', 'inference:reader'])(
    'the scope %s is taken without one',
    async (scope) => {
      const path = join(files({}), 'keys.json')
      expect((await runs(key, [path, '--name=ci', `--scope=${scope}`])).err).not.toContain('warning')
    },
  )

  test('the line of an existing hash is not reported for an unwritten file', async () => {
    const directory = files({
      'keys.json': JSON.stringify({ keys: [{ name: 'old', sha256: sha256('0123456789abcdefghij'), scopes: [] }] }),
    })
    const stdin = vi
      .spyOn(process, 'stdin', 'get')
      .mockReturnValue(Readable.from([Buffer.from('0123456789abcdefghij')]) as unknown as typeof process.stdin)
    const { err } = await runs(key, [join(directory, 'keys.json'), '--name=own', '--scope=all', '--hash'], directory)
    stdin.mockRestore()
    expect(err).toBe("error: with this key ./keys.json could not be used: keys: the hash of 'own' occurs twice\n")
  })

  test('an invalid file, and one that another command writes, are left alone', async () => {
    const directory = files({ 'keys.json': '{\n"keyz": []}', 'busy.json.new': '' })
    const wrong = await runs(key, [join(directory, 'keys.json'), '--name=a', '--scope=all'], directory)
    expect(wrong).toMatchObject({ code: 1, out: '' })
    expect(wrong.err).toMatch(/\.\/keys\.json: line 2, column \d+: keyz: unknown field `keyz`/)
    const busy = await runs(key, [join(directory, 'busy.json'), '--name=a', '--scope=all'], directory)
    expect(busy).toMatchObject({ code: 1, out: '' })
    expect(busy.err).toContain('another nereid uses it')
  })
})

test('a file that an editor began with a byte order mark', async () => {
  const path = join(files({ 'keys.json': '\uFEFF{\r\n"keys": []\r\n}\r\n' }), 'keys.json')
  expect((await runs(key, [path, '--name=new', '--scope=all'])).code).toBe(0)
  expect(read(path).keys.map(({ name }) => name)).toEqual(['new'])
})

test('a full disk is reported, and the file keeps every key', () => {
  const keys = Array.from({ length: 30 }, (_, i) => ({ name: `k${i}`, sha256: sha256(String(i)), scopes: [] }))
  const before = JSON.stringify({ keys }, null, 1)
  const path = join(files({ 'keys.json': before }), 'keys.json')
  // Limits the file's KiB: as on a full disk, a write is short first, and then fails.
  const { status, stdout, stderr } = spawnSync(
    'bash',
    ['-c', 'ulimit -f 2; exec node dist/cli/main.js key "$0" --name=new --scope=all', path],
    { encoding: 'utf8' },
  )
  expect({ status, stdout, stderr }).toEqual({
    status: 1,
    stdout: '',
    stderr: expect.stringMatching(/^error: cannot write '.*keys\.json': .*too large/),
  })
  expect(readFileSync(path, 'utf8')).toBe(before)
}, 60_000)

describe('a key of one’s own', () => {
  const given = async (text: string): Promise<{ code: number; out: string; err: string; path: string }> => {
    const directory = files({})
    const path = join(directory, 'keys.json')
    const stdin = vi
      .spyOn(process, 'stdin', 'get')
      .mockReturnValue(Readable.from([Buffer.from(text)]) as unknown as typeof process.stdin)
    try {
      return { ...(await runs(key, [path, '--name=own', '--scope=all', '--hash'], directory)), path }
    } finally {
      stdin.mockRestore()
    }
  }

  test('is read from stdin, and not printed', async () => {
    const { code, out, err, path } = await given('0123456789abcdefghij\n')
    expect({ code, out, err }).toEqual({ code: 0, out: '', err: "./keys.json has the hash of the key 'own'\n" })
    expect(read(path).keys[0]?.sha256).toBe(sha256('0123456789abcdefghij'))
  })

  test.each(['', 'password\n', 'a'.repeat(513), 'correct horse battery staple', 'äöü0123456789abcdefghij'])(
    '%j is refused',
    async (text) => {
      const { code, out, path } = await given(text)
      expect({ code, out }).toEqual({ code: 1, out: '' })
      expect(() => statSync(path)).toThrow()
    },
  )
})

test('a link to a keys file stays a link', async () => {
  const directory = files({ 'real.json': '{}' })
  writeFileSync(join(directory, 'note'), '')
  const { symlinkSync, lstatSync } = await import('node:fs')
  symlinkSync('real.json', join(directory, 'keys.json'))
  expect((await runs(key, [join(directory, 'keys.json'), '--name=a', '--scope=all'])).code).toBe(0)
  expect(lstatSync(join(directory, 'keys.json')).isSymbolicLink()).toBe(true)
  expect(read(join(directory, 'real.json')).keys).toHaveLength(1)
})
