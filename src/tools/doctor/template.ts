/**
 * Reads YAML with `{{ … }}` and `{% … %}` of Helm, Jinja and the like: replaces each value by a word that YAML takes as
 * text, and restores it when the text is read. Drops control lines (`{{- if … }}`), so that all branches are seen.
 * Lines keep their numbers. Pure.
 */

const OPENING = /\{\{|\{%|\{#/g
const CLOSING: Readonly<Record<string, string>> = { '{{': '}}', '{%': '%}', '{#': '#}' }
const CONTROL =
  /^-?\s*(?:if|else|elif|end(?:if|for|with|macro)?|range|for|with|define|block|template|set|macro|\/\*|\$\w+\s*:?=)/
const MARK = /TEMPLATED(\d+)VALUE/g

export interface PlainYaml {
  text: string
  /** The values by the numbers in the words; empty for a text without templates. */
  values: string[]
  /** Line of the first template, from 1. */
  line: number
}

interface Template {
  from: number
  through: number
}

export function withoutTemplates(text: string): PlainYaml {
  const templates = templatesOf(text)
  const parts: string[] = []
  const values: string[] = []
  let done = 0
  for (let i = 0; i < templates.length;) {
    // All templates that begin on one line, with the text around them.
    const { from } = templates[i] ?? { from: 0 }
    const lineStart = text.lastIndexOf('\n', from) + 1
    const newline = text.indexOf('\n', from)
    const lineEnd = newline < 0 ? text.length : newline
    const together: Template[] = []
    let around = ''
    let end = lineStart
    for (let next = templates[i]; next !== undefined && next.from < lineEnd; next = templates[++i]) {
      around += text.slice(end, next.from)
      together.push(next)
      end = next.through
    }
    around += text.slice(end, Math.max(end, lineEnd))
    const before = text.slice(lineStart, from)
    // YAML comments also keep their templates out of the text.
    const isNothing = around.trim() === '' || before.trimStart().startsWith('#')
    const isBranch = before.trim() === '' && CONTROL.test(text.slice(from + 2, from + 20))
    for (const template of together) {
      const written = text.slice(template.from, template.through)
      parts.push(text.slice(done, template.from))
      if (!isNothing && written.startsWith('{{') && !(isBranch && CONTROL.test(written.slice(2, 20)))) {
        parts.push(`TEMPLATED${values.length}VALUE`)
        values.push(written)
      }
      parts.push('\n'.repeat(written.split('\n').length - 1))
      done = template.through
    }
  }
  const first = templates.find(({ from }) => !text.startsWith('{#', from))
  const line = first === undefined ? 0 : text.slice(0, first.from).split('\n').length
  return { text: parts.join('') + text.slice(done), values, line }
}

/** All closed templates, in order. */
function templatesOf(text: string): Template[] {
  const found: Template[] = []
  OPENING.lastIndex = 0
  for (let opening = OPENING.exec(text); opening !== null; opening = OPENING.exec(text)) {
    const end = text.indexOf(CLOSING[opening[0]] ?? '', opening.index + 2)
    if (end < 0) break
    found.push({ from: opening.index, through: end + 2 })
    OPENING.lastIndex = end + 2
  }
  return found
}

/** A text with its original templates. */
export function withTemplates(text: string, values: readonly string[]): string {
  return values.length === 0 ? text : text.replaceAll(MARK, (all, number: string) => values[Number(number)] ?? all)
}
