/** The repository's own files, for tests that compare documents with them. */
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'

/** Files below a directory whose names match; not those of other people's packages, and nothing that was built. */
export function filesBelow(directory: string, pattern: RegExp): string[] {
  return readdirSync(directory).flatMap((name) => {
    const path = join(directory, name)
    if (name === 'node_modules' || name === 'target') return []
    return statSync(path).isDirectory() ? filesBelow(path, pattern) : pattern.test(name) ? [path] : []
  })
}
