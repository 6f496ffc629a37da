/** `/docs`: a page with its script and style. The script fetches the OpenAPI document from this server and shows it. */

export const DOCS = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>HTTP API</title>
<link rel="stylesheet" href="/docs/page.css">
<script src="/docs/page.js" defer></script>
</head>
<body>
<main id="page"><p>The description is fetched from <a href="/v2/openapi.json">/v2/openapi.json</a>; showing it needs
JavaScript.</p></main>
</body>
</html>
`

/** Texts of the document are inserted as text only; no markup is parsed. */
export const SCRIPT = String.raw`'use strict'
{
  const element = (name, attributes, ...children) => {
    const made = document.createElement(name)
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
    made.append(...children)
    return made
  }
  const code = (text) => element('code', {}, text)
  const section = (title, ...children) => [element('h4', {}, title), ...children]

  /** Describes a schema in one line, with links to other schemas. */
  const typeOf = (schema) => {
    if (typeof schema !== 'object' || schema === null) return [schema === false ? 'nothing' : 'anything']
    if (schema.$ref !== undefined) {
      const name = schema.$ref.split('/').pop()
      return [element('a', { href: '#schema-' + encodeURIComponent(name) }, name)]
    }
    if (schema.const !== undefined) return [code(JSON.stringify(schema.const))]
    if (schema.enum !== undefined)
      return schema.enum.flatMap((value, i) => [...(i === 0 ? [] : [' or ']), code(JSON.stringify(value))])
    const choice = schema.anyOf ?? schema.oneOf
    if (choice !== undefined) return choice.flatMap((one, i) => [...(i === 0 ? [] : [' or ']), ...typeOf(one)])
    if (schema.type === 'array') {
      if (schema.prefixItems !== undefined) {
        const items = schema.prefixItems.flatMap((one, i) => [...(i === 0 ? [] : [', ']), ...typeOf(one)])
        return ['[', ...items, ']']
      }
      return ['list of ', ...(schema.items === undefined ? ['anything'] : typeOf(schema.items))]
    }
    const type = schema.format ?? [schema.type ?? 'anything'].flat().join(' or ')
    const from = schema.minimum === undefined ? '' : 'from ' + schema.minimum
    const to = schema.maximum === undefined ? '' : 'to ' + schema.maximum
    return [[type, from, to].filter((part) => part !== '').join(' ')]
  }

  const cells = (...contents) => element('tr', {}, ...contents.map((one) => element('td', {}, ...one)))
  const optional = (name, isRequired) => [code(name), isRequired ? '' : ' (optional)']
  const members = (schema) =>
    Object.entries(schema.properties ?? {}).map(([name, of]) =>
      cells(optional(name, (schema.required ?? []).includes(name)), typeOf(of), [of?.description ?? '']),
    )

  const schemaBox = ([name, schema]) => {
    const rows = members(schema)
    const body = rows.length > 0 ? element('table', {}, ...rows) : element('p', {}, ...typeOf(schema))
    const description = schema.description === undefined ? '' : element('p', {}, schema.description)
    const id = 'schema-' + encodeURIComponent(name)
    return element('details', { id }, element('summary', {}, code(name)), description, body)
  }

  const contents = (content) =>
    Object.entries(content ?? {}).map(([media, { schema }]) => element('p', {}, code(media), ': ', ...typeOf(schema)))

  const operationBox = (path, shared, method, operation) => {
    const parameters = [...shared, ...(operation.parameters ?? [])].map((one) =>
      cells(optional(one.name, one.required), [one.in], [one.description ?? one.schema?.description ?? '']),
    )
    const answers = Object.entries(operation.responses).flatMap(([status, answer]) => [
      element('p', {}, element('strong', {}, status), ' ', answer.description ?? (answer.$ref ?? '').split('/').pop()),
      ...contents(answer.content),
    ])
    const title = [element('b', { class: method }, method.toUpperCase()), ' ', code(path), ' ', operation.summary ?? '']
    return element(
      'details', { id: operation.operationId }, element('summary', {}, ...title),
      ...(parameters.length > 0 ? section('Parameters', element('table', {}, ...parameters)) : []),
      ...(operation.requestBody === undefined ? [] : section('Body', ...contents(operation.requestBody.content))),
      ...section('Answers', ...answers),
    )
  }

  const show = (document) => {
    const groups = new Map((document.tags ?? []).map(({ name, description }) => [name, { description, boxes: [] }]))
    for (const [path, item] of Object.entries(document.paths)) {
      for (const method of ['get', 'post']) {
        const operation = item[method]
        if (operation === undefined) continue
        const tag = operation.tags?.[0] ?? 'other'
        if (!groups.has(tag)) groups.set(tag, { description: '', boxes: [] })
        groups.get(tag).boxes.push(operationBox(path, item.parameters ?? [], method, operation))
      }
    }
    const link = element('a', { href: source }, 'OpenAPI description')
    const shown = [...groups].filter(([, { boxes }]) => boxes.length > 0)
    return [
      element('h1', {}, document.info.title, ' ', element('small', {}, document.info.version)),
      element('p', {}, element('a', { href: '/' }, 'server'), ' · ', link),
      ...shown.flatMap(([name, { description, boxes }]) => {
        return [element('h2', {}, name), element('p', {}, description), ...boxes]
      }),
      element('h2', {}, 'schemas'),
      ...Object.entries(document.components?.schemas ?? {}).map(schemaBox),
    ]
  }

  const model = new URLSearchParams(location.search).get('model')
  const source = '/v2/openapi.json' + (model === null ? '' : '?model=' + encodeURIComponent(model))
  const page = document.getElementById('page')
  // Opens the section that the fragment of the URL names.
  const open = () => {
    const found = location.hash === '' ? null : document.getElementById(location.hash.slice(1))
    if (found !== null) {
      found.open = true
      found.scrollIntoView()
    }
  }
  const load = async () => {
    const answer = await fetch(source)
    const text = await answer.json()
    if (!answer.ok) throw new Error(text.error)
    document.title = text.info.title
    page.replaceChildren(...show(text))
    addEventListener('hashchange', open)
    open()
  }
  const fail = ({ message }) =>
    page.replaceChildren(element('h1', {}, 'HTTP API'), element('p', { class: 'bad' }, source + ': ' + message))
  load().catch(fail)
}
`

export const STYLE = `:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 small { font-weight: normal; opacity: 0.6; }
h4 { margin: 0.75rem 0 0.25rem; }
table { border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; }
td, th { border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
details { border: 1px solid #8884; border-radius: 4px; margin: 0.4rem 0; padding: 0.4rem 0.8rem; }
summary { cursor: pointer; }
code { font-family: ui-monospace, monospace; font-size: 0.9em; overflow-wrap: anywhere; }
.good, .get { color: #18794e; }
.bad { color: #cd2b31; }
.other { color: #ad5700; }
.post { color: #0b68cb; }
`
