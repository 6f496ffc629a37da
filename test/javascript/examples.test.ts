/** Examples with models in TypeScript: the compiler accepts them, and their own tests pass. test/python serves them. */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { writeText } from '../../scripts/models/text.mjs'
import { ROOT } from '../docs/pages.js'

const OWN = ['text-ts', 'router-ts', 'ensemble-ts', 'image-ts']
/** chat.test.ts runs it. Packages of chat-llama-cpp are no part of the clone: `npm run test:heavy -- chat`. */
const CHAT = 'chat-ts'

test('models of the examples are accepted by the compiler', () => {
  const files = [...OWN, CHAT].flatMap((folder) =>
    readdirSync(join(ROOT, 'examples', folder))
      .map((model) => join(ROOT, 'examples', folder, model, '1/model.ts'))
      .filter((file) => existsSync(file)),
  )
  expect(files.length).toBe(9)
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
  const kind = ['--module', 'nodenext', '--types', 'node', '--ignoreConfig', '--allowImportingTsExtensions']
  const strict = ['--strict', '--noUncheckedIndexedAccess', '--skipLibCheck', '--noEmit']
  execFileSync('node', [tsc, ...kind, ...strict, ...files])
})

test('tests of the examples pass without a server', () => {
  // The build writes their vocabulary.
  if (!existsSync(join(ROOT, 'examples/text-ts/tokenizer/1/vocab.txt'))) writeText()
  for (const folder of OWN) {
    const report = execFileSync('node', ['--test', join(ROOT, 'examples', folder)], { encoding: 'utf8' })
    expect(report, folder).toMatch(/^. fail 0$/m)
  }
})
