/** Problems as workflow commands of GitHub Actions, which shows them in the diff of a pull request. Pure. */

import type { Place } from './excerpt.js'

/** One command with its line feed. */
export function annotation(
  severity: 'error' | 'warning',
  { file, place, text }: { file: string | null; place: Place | null; text: string },
): string {
  const properties = Object.entries({
    file,
    line: place?.line,
    col: place?.column,
    endColumn: place?.endColumn,
    title: 'nereid check',
  })
  const given = properties.flatMap(([name, value]) =>
    value === null || value === undefined
      ? []
      : [`${name}=${escaped(String(value)).replaceAll(':', '%3A').replaceAll(',', '%2C')}`],
  )
  return `::${severity} ${given.join(',')}::${escaped(text)}\n`
}

const escaped = (text: string): string => text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A')
