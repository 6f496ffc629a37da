/**
 * What guides, other servers and habit call the backends, and what they are called in a configuration. Errors about a backend or platform
 * that is not known end with it.
 */
import { BACKENDS, backendRow } from './backends.js'
import { nearest } from './suggest.js'

const fold = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')

/** Folded spelling → backend. */
const SPELLINGS: ReadonlyMap<string, string> = new Map(
  BACKENDS.flatMap(({ name, spellings = [], files = [] }) => {
    const ofFiles = files.flatMap(({ name: file, platform = '', aliases = [] }) => [platform, ...aliases, file.slice(file.lastIndexOf('.') + 1)])
    return [name, ...spellings, ...ofFiles].filter((word) => word !== '').map((word) => [fold(word), name] as const)
  }),
)

/** Names that a misspelt one may mean: those that guides use. Shorter ones (`fil`, `dali`) are close to too many words. */
const NEAR = BACKENDS.filter(({ name, spellings }) => name.length > 5 && spellings !== undefined).map(({ name }) => name)

/** The backend that a name most likely means; null for a name that is nothing's. */
export function backendMeant(name: string): string | null {
  // Longer than any name: no misspelling.
  if (name.length > 64) return null
  const folded = fold(name)
  return SPELLINGS.get(folded) ?? (folded.length < 4 ? null : nearest(folded, NEAR))
}

/** What is to be said of a backend that Triton has and this release has not; null of any other. */
export function absentBackend(backend: string): string | null {
  const row = backendRow(backend)
  return row?.served === 'absent' ? row.note : null
}

/** What goes behind an error about a value of the field `backend` or `platform`; empty when nothing is known of it. */
export function backendHint(name: string, field: 'backend' | 'platform' = 'backend'): string {
  const meant = backendMeant(name)
  if (meant === null) return ''
  const absent = absentBackend(meant)
  if (absent !== null) return `; ${absent}`
  // No platform that is refused has the name of its backend.
  return name === meant && field === 'backend' ? '' : `; did you mean ${backendRow(meant)?.written ?? `backend: "${meant}"`}?`
}
