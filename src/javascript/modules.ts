/**
 * Imports the model's file: TypeScript where Node cannot strip types itself, and `nereid/backend`, which is this
 * package wherever the model lies.
 */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import * as nodeModule from 'node:module'
import { dirname, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { isCode, isTypeScript, needsTranspiler, relativeImports, stripsTypes } from '../native/typescript.js'
import { RuleError } from './errors.js'
import { resolveOurs, transpiled, warmUp, written } from './hooks.js'
import * as backend from './index.js'
import type { Load } from './load.js'

const CHECK_MS_MAX = 5000

let areInstalled = false

/** Removes types and keeps all positions; since Node 22.13. */
const { stripTypeScriptTypes: withoutTypes } = nodeModule as { stripTypeScriptTypes?: (source: string) => string }

/** Prepares this thread for a model in TypeScript that is not known yet. */
export function prepare(): void {
  install(true)
  // The first call compiles Node's parser, which takes 100 ms.
  if (stripsTypes()) withoutTypes?.('')
}

function install(isSpare = false): void {
  if (areInstalled) return
  areInstalled = true
  const { register, registerHooks } = nodeModule as {
    register?: (file: string, options: object) => void
    registerHooks?: (hooks: object) => void
  }
  if (!stripsTypes()) process.setSourceMapsEnabled(true)
  // `require` asks the hooks in some versions of Node only, and not all of them can require an ES module.
  const { Module } = nodeModule as unknown as { Module: Record<'_load', (name: string, ...rest: unknown[]) => unknown> }
  const loadModule = Module['_load']
  Module['_load'] = (name, ...rest) => (name === 'nereid/backend' ? backend : loadModule.call(Module, name, ...rest))
  if (registerHooks !== undefined) {
    type Next = (specifier: string, context: object) => { format?: string | null }
    const resolveName = (name: string, context: object, next: Next) =>
      resolveOurs(name) ?? next(written(name, context), context)
    const load = (url: string, context: object, next: Next) => transpiled(url) ?? next(url, context)
    // A hook that reads files gives CommonJS another `require` in Node 22, which asks no hook.
    registerHooks(stripsTypes() ? { resolve: resolveName } : { resolve: resolveName, load })
    if (isSpare && !stripsTypes()) warmUp()
  } else if (register === undefined) throw new RuleError('the backend `javascript` needs Node 20.6 or newer')
  else register('./hooks.js', { parentURL: import.meta.url, data: { stripsTypes: stripsTypes(), isSpare } })
}

/** Brings the model of a file: its default export, or `module.exports`. */
export async function importModel({ file, model }: Pick<Load, 'file' | 'model'>): Promise<unknown> {
  install()
  try {
    const { default: exported } = (await import(pathToFileURL(file).href)) as { default?: unknown }
    // An ES module that was compiled to CommonJS has its default export one level deeper.
    const compiled = exported as { ['__esModule']?: boolean; default?: unknown } | null | undefined
    return compiled?.['__esModule'] === true ? compiled.default : exported
  } catch (error) {
    if (error instanceof SyntaxError) locate(error, file)
    if (!isTypeScript(file) || (error as { code?: string }).code !== 'NEREID_NO_TRANSPILER') throw error
    throw new RuleError(needsTranspiler(model))
  }
}

/** Most files that are searched for a syntax error. */
const SEARCHED_MAX = 20

const HAS_PLACE = /^\S+:\d+\n/

/** Writes the place of a syntax error above its stack. V8 tells it to Node only, which prints it where it ends. */
function locate(error: SyntaxError, file: string): void {
  if (HAS_PLACE.test(error.stack ?? '')) return
  const files = new Set([file])
  const end = performance.now() + CHECK_MS_MAX
  let searched = 0
  for (const one of files) {
    const left = Math.floor(end - performance.now())
    if (searched >= SEARCHED_MAX || left <= 0) return
    searched += 1
    if (!isCode(one)) continue
    let source = ''
    try {
      source = readFileSync(one, 'utf8')
    } catch {
      // An import that is not a file.
    }
    for (const path of relativeImports(source)) files.add(resolve(dirname(one), path))
    // Node removes no types where it checks a file, and a removed type leaves blanks.
    let input: string | null = null
    if (isTypeScript(one)) {
      if (withoutTypes === undefined) continue
      try {
        input = withoutTypes(source)
      } catch {
        // Only removing types fails by itself, and Node reports the place of that.
        continue
      }
    }
    const format = one.endsWith('.cts') ? 'commonjs' : 'module'
    const args = input === null ? [one] : [`--input-type=${format}`, '-']
    const { stderr } = spawnSync(process.execPath, ['--check', ...args], {
      encoding: 'utf8',
      timeout: left,
      input: input ?? '',
    })
    const [, place] = /^[^\n]+?(:\d+\n[^]*?)\n\n/.exec(stderr) ?? []
    if (place === undefined || !/^SyntaxError\b/m.test(stderr)) continue
    error.stack = `${one}${place}\n\n${error.stack}`
    return
  }
}
