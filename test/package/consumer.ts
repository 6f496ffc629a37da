// Compiled against the installed package, with every check on its declarations.
import { Server, type ServerOptions } from 'nereid'
import { Region } from 'nereid/shm'

export const options: ServerOptions = { modelRepository: './models', http: { port: 0 } }

export async function ask(): Promise<unknown> {
  await using server = await Server.start(options)
  const result = await server
    .model('simple')
    .infer({ inputs: { INPUT0: { data: new Int32Array(16), shape: [1, 16] } } })
  return [result.output('OUTPUT0').data, server.ports.http, server.index().map((row) => row.state), Region]
}
