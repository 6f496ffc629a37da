/** How rows of the table are written, in docs/security/permissions.md and by the suite. */

/** Answers of both transports; of one where the verb has no other. */
export function cell(verb, answer) {
  const parts = ['http', 'grpc']
    .filter((transport) => verb[transport] !== null)
    .map((transport) => answer(transport) ?? 'nothing')
  // A connection that does not come to be is the same for both.
  return [...new Set(parts)].join(', ')
}

/** The lines above the rows of a section. */
export function heading(section) {
  const flags =
    section.flags.length === 0
      ? 'nereid --model-repository=models'
      : section.flags.map((flag) => `\`${flag}\``).join(' ')
  const columns = section.columns.map(({ where, brings }) => (brings === 'nothing' ? where : `${where}, ${brings}`))
  return (
    `## ${section.title}\n\n${flags.startsWith('`') ? flags : `\`${flags}\``}\n\n| verb | ` +
    `${columns.join(' | ')} |\n|---|${columns.map(() => '---').join('|')}|`
  )
}

/** A section as docs/security/permissions.md has it. */
export function sectionText(section, verbs) {
  const rows = verbs.map((verb) => {
    const cells = section.columns.map(({ expect }) => cell(verb, (transport) => expect(verb, transport)))
    return `| ${[verb.title, ...cells].join(' | ')} |`
  })
  return `${heading(section)}\n${rows.join('\n')}\n`
}

/** Names of the verbs in each protocol. */
export function verbText(verbs) {
  const code = (text) => (text === null ? '' : `\`${text}\``)
  const http = ({ method, path }) => `${method} ${path}`
  const rows = verbs.map(
    (verb) =>
      `| ${verb.title} | ${code(verb.http === null ? null : http(verb.http))} | ${code(verb.grpc)} | ` +
      `${verb.category ?? ''} | ${verb.act === 'write' ? 'yes' : ''} |`,
  )
  return (
    '## The verbs\n\n| verb | HTTP | gRPC | category | changes the server ' +
    `|\n|---|---|---|---|---|\n${rows.join('\n')}\n`
  )
}
