/** Tests and flags of Node for models written in TypeScript. */

import { extname } from 'node:path'

export const isCode = (file: string): boolean => /\.[cm]?[jt]s$/.test(file)

export const isTypeScript = (file: string): boolean => ['.ts', '.mts', '.cts'].includes(extname(file))

/** True if Node strips types: since 22.18, or with its flag since 22.6. */
export const stripsTypes = (): boolean => Boolean((process.features as { typescript?: string | false }).typescript)

const [MAJOR = 0, MINOR = 0] = process.versions.node.split('.').map(Number)

/**
 * Flags with which another thread or process of this Node strips types; none if it does so anyway, or never. By the
 * version: the list of the flags that a Node has takes each start 1.4 ms.
 */
export const TYPE_FLAGS: readonly string[] =
  !stripsTypes() && (MAJOR > 22 || (MAJOR === 22 && MINOR >= 6)) ? ['--experimental-strip-types', '--no-warnings'] : []

const IMPORT = /\b(?:from|import|require)\s*\(?\s*(['"])(\.{1,2}\/[^'"\n]+)\1/g

/**
 * Relative imports of a source, by its text: a computed path is not seen, and an import in a comment counts. A compiled
 * name may mean the file in TypeScript, so both are listed.
 */
export const relativeImports = (source: string): string[] =>
  [...source.matchAll(IMPORT)].flatMap(([, , path = '']) =>
    /\.[cm]?js$/.test(path) ? [path, path.replace(/js$/, 'ts')] : [path],
  )

/** The error of a model that neither Node nor a transpiler can read. */
export const needsTranspiler = (model: string): string =>
  `TypeScript model '${model}' needs Node 22.18 or newer, or esbuild installed next to the server`
