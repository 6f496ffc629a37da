/** A server in front of an emulator: it answers in its place, cuts connections, and knows who asked. */
import { createServer, request } from 'node:http'

/** @param {number} port */
export async function startBetween(port) {
  const between = {
    port: 0,
    /** Answers to give in place of the storage, one for each request. @type {{ status: number, body: string }[]} */
    answers: [],
    /** Bytes of a body after which the connection is cut; null for none. @type {number | null} */
    cutAfter: null,
    /** Bytes of a body after which no more come; null for none. @type {number | null} */
    holdAfter: null,
    /** @type {{ url: string | undefined, headers: import('node:http').IncomingHttpHeaders }[]} */
    requests: [],
    /** @type {Set<import('node:net').Socket>} */
    connections: new Set(),
    stop: () =>
      new Promise((resolve) => {
        server.close(resolve)
        server.closeAllConnections()
      }),
  }
  const server = createServer((asked, answer) => {
    between.requests.push({ url: asked.url, headers: asked.headers })
    const instead = between.answers.shift()
    if (instead !== undefined)
      return answer.writeHead(instead.status, { 'content-type': 'application/xml' }).end(instead.body)
    const { cutAfter, holdAfter } = between
    const sent = request(
      { port, host: '127.0.0.1', method: asked.method, path: asked.url, headers: asked.headers },
      (storage) => {
        answer.writeHead(storage.statusCode, storage.headers)
        let bytes = 0
        storage.on('data', (chunk) => {
          const last = (cutAfter ?? holdAfter ?? Infinity) - bytes
          bytes += chunk.length
          if (bytes < (cutAfter ?? holdAfter ?? Infinity)) return answer.write(chunk)
          storage.destroy()
          answer.write(chunk.subarray(0, last), () => cutAfter !== null && asked.socket.destroy())
        })
        storage.on('end', () => answer.end())
      },
    )
    sent.on('error', () => asked.socket.destroy())
    answer.on('close', () => sent.destroy())
    asked.pipe(sent)
  })
  server.on('connection', (socket) => {
    between.connections.add(socket)
    socket.once('close', () => between.connections.delete(socket))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  between.port = server.address().port
  return between
}
