/**
 * Names of backends in guides, other servers and common use, and their names in a configuration. Errors about an
 * unknown backend or platform end with a hint from here.
 */
import { BACKENDS, backendRow } from './backends.js'
import { nearest } from './suggest.js'

const fold = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')

/** Backend by normalised spelling. */
const SPELLINGS: ReadonlyMap<string, string> = new Map(
  BACKENDS.flatMap(({ name, spellings = [], files = [] }) => {
    const ofFiles = files.flatMap(({ name: file, platform = '', aliases = [] }) => [
      platform,
      ...aliases,
      file.slice(file.lastIndexOf('.') + 1),
    ])
    return [name, ...spellings, ...ofFiles].filter((word) => word !== '').map((word) => [fold(word), name] as const)
  }),
)

/** Names that are compared with a misspelled one. Shorter ones (`fil`, `dali`) are close to too many words. */
const NEAR = BACKENDS.filter(({ name, spellings }) => name.length > 5 && spellings !== undefined).map(
  ({ name }) => name,
)

/** The backend that a name most likely means, or null. */
export function backendMeant(name: string): string | null {
  // Too long for a misspelled name.
  if (name.length > 64) return null
  const folded = fold(name)
  return SPELLINGS.get(folded) ?? (folded.length < 4 ? null : nearest(folded, NEAR))
}

/** Text about a backend that Triton has and this release lacks; null for any other. */
export function absentBackend(backend: string): string | null {
  const row = backendRow(backend)
  return row?.served === 'absent' ? row.note : null
}

/** End of an error about a value of the field `backend` or `platform`; empty for an unknown name. */
export function backendHint(name: string, field: 'backend' | 'platform' = 'backend'): string {
  const meant = backendMeant(name)
  if (meant === null) return ''
  const absent = absentBackend(meant)
  if (absent !== null) return `; ${absent}`
  // No rejected platform has the name of its backend.
  return name === meant && field === 'backend'
    ? ''
    : `; did you mean ${backendRow(meant)?.written ?? `backend: "${meant}"`}?`
}
