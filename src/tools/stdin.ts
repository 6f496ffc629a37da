/** Reads standard input; stops soon above a limit, which the caller compares with what it got. */
export async function readStdin(charactersMax: number): Promise<string> {
  let text = ''
  for await (const part of process.stdin.setEncoding('utf8')) {
    text += String(part)
    if (text.length > charactersMax) break
  }
  return text
}
