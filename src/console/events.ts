/** Reads server-sent events from pieces of any size. Pure. */

/** Longest event, in characters: the statistics of thousands of models are a few million. */
export const EVENT_CHARS_MAX = 32 << 20

export interface ServerEvent {
  name: string
  data: string
}

export class EventParser {
  readonly #decoder = new TextDecoder()
  /** Begin of a line whose end has not come, in pieces. */
  #open: string[] = []
  #chars = 0
  /** The last piece ended with CR: a LF that follows belongs to it. */
  #endedWithCr = false
  #name = ''
  #data: string[] = []

  /**
   * Takes the next piece of the body.
   *
   * @returns the events that are complete with it, in order
   * @throws {Error} for an event of more than EVENT_CHARS_MAX characters
   */
  push(piece: Uint8Array): ServerEvent[] {
    let text = this.#decoder.decode(piece, { stream: true })
    if (text === '') return []
    const isRest = this.#endedWithCr && text.startsWith('\n')
    this.#endedWithCr = text.endsWith('\r')
    if (isRest) text = text.slice(1)
    this.#chars += text.length
    if (this.#chars > EVENT_CHARS_MAX) throw new Error(`an event has more than ${EVENT_CHARS_MAX} characters`)
    const lines = text.split(/\r\n|\r|\n/)
    const last = lines.pop() ?? ''
    const complete: ServerEvent[] = []
    for (const line of lines) {
      const whole = this.#open.length === 0 ? line : this.#open.join('') + line
      this.#open = []
      const event = this.#line(whole)
      if (event === null) continue
      complete.push(event)
      this.#chars = last.length
    }
    if (last !== '') this.#open.push(last)
    return complete
  }

  /** One line without its end; an event if the line is empty and ends one. */
  #line(line: string): ServerEvent | null {
    if (line === '') {
      const event = { name: this.#name || 'message', data: this.#data.join('\n') }
      const isEvent = this.#data.length > 0
      this.#name = ''
      this.#data = []
      return isEvent ? event : null
    }
    const colon = line.indexOf(':')
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (field === 'event') this.#name = value
    else if (field === 'data') this.#data.push(value)
    return null
  }
}
