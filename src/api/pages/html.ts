/** `/` for browsers. Names and reasons come from clients and files, so all text is escaped. */

import type { IndexRow } from '../../repository/index.js'

/** The contents of `/`, as JSON or HTML. */
export interface Home {
  name: string
  version: string
  /** The server that implements the API of `name` and `version`. */
  implementation: { name: string; version: string }
  ready: boolean
  models: IndexRow[]
  /** `metrics` is absent if the URL is unknown. */
  links: { docs: string; openapi: string; metrics?: string }
}

/** Maximum rows of the table; the JSON form has all. */
const ROWS_MAX = 1000
/** Maximum length of a name or a reason. */
const TEXT_CHARS_MAX = 500

const ENTITIES: Readonly<Record<string, string>> =
  { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

/** Escapes text and quoted values of attributes. */
export const escaped = (text: string): string => text.replace(/[&<>"']/g, (one) => ENTITIES[one] ?? '')

function shown(text: string): string {
  return escaped(text.length > TEXT_CHARS_MAX ? `${text.slice(0, TEXT_CHARS_MAX)}…` : text)
}

function row({ name, version = '', state, reason = '' }: IndexRow): string {
  // Only a ready model has a description.
  const model =
    state === 'READY' ? `<a href="/docs?model=${escaped(encodeURIComponent(name))}">${shown(name)}</a>` : shown(name)
  const kind = state === 'READY' ? 'good' : state === 'UNAVAILABLE' ? 'bad' : 'other'
  const cells = [`<td>${model}</td><td>${shown(version)}</td>`, `<td class="${kind}">${state ?? ''}</td>`]
  return `<tr>${cells.join('')}<td>${shown(reason)}</td></tr>`
}

export function homeHtml({ name, version, implementation, ready, models, links }: Home): string {
  const own = shown(`${implementation.name} ${implementation.version}`)
  const more = models.length - ROWS_MAX
  const rows = models.slice(0, ROWS_MAX).map(row).join('\n')
  const table =
    models.length === 0
      ? '<p>No models.</p>'
      : `<table>\n<tr><th>model</th><th>version</th><th>state</th><th>reason</th></tr>\n${rows}\n</table>`
  const metrics = links.metrics === undefined ? '' : `\n<li><a href="${escaped(links.metrics)}">metrics</a></li>`
  const docs = `<a href="${escaped(links.docs)}">documentation of the HTTP API</a>`
  const openapi = `<a href="${escaped(links.openapi)}">OpenAPI description</a>`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${shown(name)}</title>
<link rel="stylesheet" href="/docs/page.css">
</head>
<body>
<h1>${shown(name)} <small>${shown(version)}</small></h1>
<p>${own} is <strong class="${ready ? 'good' : 'bad'}">${ready ? 'ready' : 'not ready'}</strong>.</p>
<ul>
<li>${docs}, from its ${openapi}</li>${metrics}
</ul>
<h2>Models</h2>
${table}
${more > 0 ? `<p>And ${more} more rows: <code>POST /v2/repository/index</code> has all of them.</p>\n` : ''}</body>
</html>
`
}
