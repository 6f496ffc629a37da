/** Hooks of Node's module loader. `module.register` runs this file on its own thread: it imports no file of ours. */

import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { stripVTControlCharacters } from 'node:util'

const OURS = new Map([
  ['nereid/backend', new URL('./index.js', import.meta.url).href],
  ['nereid/backend/testing', new URL('./testing.js', import.meta.url).href],
])

/** This package, for a model that imports it by name. */
export function resolveOurs(specifier: string): { url: string; shortCircuit: true } | null {
  const url = OURS.get(specifier)
  return url === undefined ? null : { url, shortCircuit: true }
}

/** `./helper.ts` for `./helper.js` if only that exists: `module: nodenext` has TypeScript import compiled names. */
export function written(specifier: string, { parentURL = '' }: { parentURL?: string }): string {
  const [, start] = /^(\.{1,2}\/.*\.[cm]?)js$/.exec(specifier) ?? []
  const exists = (path: string) => existsSync(new URL(path, parentURL))
  if (start === undefined || !/^file:.*\.[cm]?ts$/.test(parentURL)) return specifier
  return !exists(specifier) && exists(`${start}ts`) ? `${start}ts` : specifier
}

type Transpile = (source: string, file: string) => string

const inline = (code: string, map: unknown) => {
  const text = typeof map === 'string' ? map : JSON.stringify(map)
  return `${code}\n//# sourceMappingURL=data:application/json;base64,${Buffer.from(text).toString('base64')}\n`
}

interface Rolldown {
  transformSync(file: string, source: string, options: object): { code: string; map: unknown; errors: Error[] }
}
interface Esbuild {
  transformSync(source: string, options: object): { code: string }
}
interface TypeScript {
  transpileModule(source: string, options: object): { outputText: string }
}

/** Transpilers in order of preference, as packages and their use. */
const TRANSPILERS: readonly [string, (module: unknown) => Transpile | null][] = [
  [
    'rolldown/utils',
    (module) => (source, file) => {
      const options = { lang: 'ts', sourcemap: true, target: 'esnext' }
      const { code, map, errors } = (module as Rolldown).transformSync(file, source, options)
      const [error] = errors as (Error & { loc?: { line: number; column: number } })[]
      if (error === undefined) return inline(code, map)
      const { line = 1, column = 0 } = error.loc ?? {}
      const text = (stripVTControlCharacters(error.message).split('\n')[0] ?? '').replace(/^\[PARSE_ERROR\]\s*/, '')
      const problem = new SyntaxError(text)
      // In Node's form, which names the place above the error.
      const excerpt = `${source.split('\n')[line - 1] ?? ''}\n${' '.repeat(column)}^`
      problem.stack = `${file}:${line}\n${excerpt}\n\nSyntaxError: ${text}`
      throw problem
    },
  ],
  [
    'esbuild',
    (module) => (source, file) =>
      (module as Esbuild).transformSync(source, {
        loader: 'ts',
        sourcefile: file,
        sourcemap: 'inline',
        format: 'esm',
        target: 'esnext',
      }).code,
  ],
  [
    'typescript',
    (module) => {
      const { transpileModule } = module as Partial<TypeScript>
      const compilerOptions = { module: 99, target: 99, inlineSourceMap: true, inlineSources: true }
      // TypeScript 7 has no such function.
      return transpileModule === undefined
        ? null
        : (source, fileName) => transpileModule(source, { fileName, compilerOptions }).outputText
    },
  ],
]

let found: Transpile | null = null

/** A transpiler of this package, or of the model. */
function transpiler(file: string): Transpile {
  if (found !== null) return found
  for (const [name, use] of TRANSPILERS) {
    for (const from of [import.meta.url, file]) {
      try {
        found = use(createRequire(from)(name))
        if (found !== null) return found
      } catch {
        // It is not installed there, or not for this platform.
      }
    }
  }
  throw Object.assign(new Error('no transpiler of TypeScript is installed'), { code: 'NEREID_NO_TRANSPILER' })
}

/** Loads the transpiler of this package, if there is one, before a model needs it. */
export function warmUp(): void {
  try {
    transpiler(import.meta.url)('', 'model.ts')
  } catch {
    // A model may have one of its own; if not, its load fails.
  } finally {
    // The one beside the model comes first.
    found = null
  }
}

/** A TypeScript file as an ES module; null for another file. */
export function transpiled(url: string): { format: 'module'; source: string; shortCircuit: true } | null {
  const { protocol, pathname } = new URL(url)
  if (protocol !== 'file:' || !/\.m?ts$/.test(pathname)) return null
  const file = fileURLToPath(url)
  return { format: 'module', source: transpiler(file)(readFileSync(file, 'utf8'), file), shortCircuit: true }
}

type Next<Result> = (specifier: string, context: object) => Promise<Result>

let stripsTypes = false

/** Hook for `module.register`: whether Node transpiles TypeScript itself. */
export function initialize(data: { stripsTypes: boolean; isSpare: boolean }): void {
  stripsTypes = data.stripsTypes
  if (data.isSpare && !stripsTypes) warmUp()
}

/** Hook for `module.register`. */
export async function resolve(specifier: string, context: object, next: Next<object>): Promise<object> {
  return resolveOurs(specifier) ?? next(written(specifier, context), context)
}

/** Hook for `module.register`. */
export async function load(url: string, context: object, next: Next<object>): Promise<object> {
  return (stripsTypes ? null : transpiled(url)) ?? next(url, context)
}
