/** The repository's own files, for tests that compare documents with them. */
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'

/** Files below a directory with matching names, except third-party packages and build output. */
export function filesBelow(directory: string, pattern: RegExp): string[] {
  return readdirSync(directory).flatMap((name) => {
    const path = join(directory, name)
    if (name === 'node_modules' || name === 'target') return []
    return statSync(path).isDirectory() ? filesBelow(path, pattern) : pattern.test(name) ? [path] : []
  })
}
