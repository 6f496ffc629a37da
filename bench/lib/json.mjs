/**
 * A result as JSON with a line for each member and for each row of a table, so that a diff of two runs shows what
 * differs.
 */
export function jsonOf(result) {
  const rows = (value) =>
    Array.isArray(value) && typeof value[0] === 'object'
      ? `[\n${value.map((row) => `  ${JSON.stringify(row)}`).join(',\n')}\n ]`
      : JSON.stringify(value)
  const members = Object.entries(result).filter(([, value]) => value !== undefined)
  return `{\n${members.map(([name, value]) => ` ${JSON.stringify(name)}: ${rows(value)}`).join(',\n')}\n}\n`
}
