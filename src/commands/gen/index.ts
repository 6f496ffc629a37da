/**
 * `nereid gen ts`: the models of a server, or of a repository, as one file of TypeScript types for `nereid-client`. With `--check` it compares.
 *
 * Exit code 0 when the file was written or is as it should be, 1 when it differs or the models cannot be had, 2 for arguments that are wrong.
 */

import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, resolve } from 'node:path'
import { parseObject } from '../../cli/parse.js'
import { resolveSettings } from '../../cli/settings.js'
import type { ModelDescription } from '../../api/description.js'
import { CommandError, commandNamed, readArguments } from '../arguments.js'
import { replaceFile } from '../replace.js'
import { modelsOfRepository, modelsOfServer } from './source.js'
import { MARK, typescriptOf } from './typescript.js'

/** What the client is imported from: a package of its own, or a part of the server's. */
const MODULES = ['nereid-client', 'nereid/client'] as const

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('gen')
  let asked: Asked
  try {
    asked = readAsked(readArguments(command, args))
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    process.stderr.write(`${error.message}; see ${program} help gen\n`)
    return 2
  }
  try {
    const models = await find(asked)
    if (asked.check !== null) return compare(asked.check, models, asked.module)
    const text = typescriptOf(models, asked.module ?? installed(asked.out === null ? '.' : dirname(asked.out)))
    if (asked.out === null) process.stdout.write(text)
    else writeOut(asked.out, text)
    return 0
  } catch (error) {
    // Files that cannot be written, models that do not load: what is said of them is enough.
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  }
}

/** A pipe or a device is written to, and not replaced. */
function writeOut(out: string, text: string): void {
  if (statSync(out, { throwIfNoEntry: false })?.isFile() === false) writeFileSync(out, text)
  else replaceFile(out, text, 0o666)
}

interface Asked {
  url: string | null
  repository: string | null
  models: string[] | null
  headers: Record<string, string>
  /** Null takes what is installed. */
  module: string | null
  out: string | null
  check: string | null
}

function readAsked({ rest, options }: ReturnType<typeof readArguments>): Asked {
  if (rest.length !== 1 || rest[0] !== 'ts') throw new CommandError(`gen makes ts (types for TypeScript)${rest.length === 0 ? ', and needs to be told: gen ts' : `, not '${rest.join(' ')}'`}`)
  const given = (name: string) => options.get(name) ?? null
  const [url, repository] = [given('url'), given('model-repository')]
  if ((url === null) === (repository === null)) throw new CommandError('gen ts needs either --url=<http://host:port> or --model-repository=<path>')
  if (url !== null && !/^https?:\/\//.test(url)) throw new CommandError(`--url is that of the HTTP port, http://… or https://…, not '${url}'`)
  const header = given('header')
  const colon = header?.indexOf(':') ?? 0
  if (header !== null && colon < 1) throw new CommandError(`--header is 'name: value', not '${header}'`)
  const headers = header === null ? {} : { [header.slice(0, colon).trim()]: header.slice(colon + 1).trim() }
  // Not by an option: every user of the machine can read command lines.
  const key = process.env['NEREID_KEY']
  const names = given('models')?.split(',').filter((name) => name !== '')
  return {
    url: url === null ? null : url.replace(/\/+$/, ''),
    repository,
    models: names ?? null,
    headers: key === undefined || key === '' ? headers : { authorization: `Bearer ${key}`, ...headers },
    module: given('import'),
    out: given('out'),
    check: given('check'),
  }
}

async function find({ url, headers, repository, models }: Asked): Promise<ModelDescription[]> {
  if (url !== null) return await modelsOfServer({ url, headers }, models)
  const parsed = parseObject({ modelRepository: [repository ?? ''] })
  return await modelsOfRepository(resolveSettings(parsed).settings, models)
}

/** The module that a file in this directory can import the client from. */
function installed(directory: string): string {
  const { resolve: find } = createRequire(resolve(directory, 'models.js'))
  for (const module of MODULES) {
    try {
      find(module)
      return module
    } catch {
      // Not installed, or a package of this name without a client.
    }
  }
  const [first, second] = MODULES
  process.stderr.write(`neither ${first} nor ${second} is installed in ${resolve(directory)}: the file imports ${first}, which 'npm install PATH/client' installs from a built clone of Nereid at PATH; --import=MODULE names another\n`)
  return first
}

/** Without a `module` the file may import the client from where it does: what is installed here says nothing about the models. */
function compare(file: string, models: readonly ModelDescription[], module: string | null): number {
  const there = readFileSync(file, 'utf8')
  const text = typescriptOf(models, module ?? /^import type .* from '([^']+)'$/m.exec(there)?.[1] ?? MODULES[0])
  if (there === text) return 0
  if (!there.startsWith(MARK)) {
    process.stderr.write(`${file} was not made by 'gen ts': its first line is another\n`)
    return 1
  }
  const [old, now] = [blocks(there), blocks(text)]
  const of = (names: string[], what: string) => (names.length === 0 ? [] : [`${what}: ${names.join(', ')}`])
  const lines = [
    ...of([...now.keys()].filter((name) => !old.has(name)), 'not in the file'),
    ...of([...old.keys()].filter((name) => !now.has(name)), 'no longer there'),
    ...of([...now.keys()].filter((name) => old.has(name) && old.get(name) !== now.get(name)), 'changed'),
  ]
  process.stderr.write(`${file} and the models differ; make it again.\n${lines.map((line) => `  ${line}\n`).join('')}`)
  return 1
}

/** The text of each model of a file. */
function blocks(text: string): Map<string, string> {
  const found = text.matchAll(/^ {2}('(?:[^'\\]|\\.)*'|[\w$]+): \{\n(?: {4}.*\n)* {2}\}$/gm)
  return new Map([...found].map(([block, name = '']) => [name, block]))
}
