/** Users of processes of backend libraries, `--host-user`. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { parseArguments } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import { userIds } from '../../src/cli/users.js'

const directory = mkdtempSync(join(tmpdir(), 'nereid-users-'))
afterAll(() => rmSync(directory, { recursive: true }))
const users = join(directory, 'passwd')
writeFileSync(users, 'root:x:0:0:root:/root:/bin/sh\nmodels:x:1234:99::/:/bin/false\nbroken:x\n')

test('a user is given by name or by numbers', () => {
  expect(userIds('models', users)).toBe('1234:99')
  expect(userIds('7:8', users)).toBe('7:8')
  expect(userIds('4294967294:1234567890', users)).toBe('4294967294:1234567890')
  expect(userIds('nobody', join(directory, 'missing'))).toBe('65534:65534')
  for (const unknown of ['', 'model', 'broken', '7', '7:', '-1:0', '99999999999:1', '4294967295:1', '1:9999999999'])
    expect(userIds(unknown, users), unknown).toBeNull()
})

const hostUser = (...flags: string[]): string | null =>
  resolveSettings(parseArguments(['--model-repository=x', ...flags])).settings.repository.hostUser

test.runIf(process.geteuid?.() === 0)('under root, libraries have no rights of root unless a flag says so', () => {
  expect(hostUser()).toMatch(/^6553[0-9]:6553[0-9]$|^99:99$/)
  expect(hostUser('--host-user=root')).toBeNull()
  expect(hostUser('--host-user=12:34')).toBe('12:34')
  expect(() => hostUser('--host-user=no-such-user')).toThrow('Got no-such-user')
})

test.runIf(process.geteuid?.() !== 0)('without root, the flag is rejected', () => {
  expect(hostUser()).toBeNull()
  expect(hostUser('--host-user=root'), 'which takes no rights').toBeNull()
  expect(() => hostUser('--host-user=nobody')).toThrow('only if root starts the server')
})
