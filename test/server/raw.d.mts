export interface RawAnswer {
  status: number
  headers: Map<string, string>
  body: Buffer
}

export declare class RawConnection {
  closed: boolean
  static open(port: number): Promise<RawConnection>
  send(...parts: (string | Buffer)[]): void
  pause(): void
  resume(): void
  destroy(): void
  answer(): Promise<RawAnswer>
  endsWithin(ms: number): Promise<boolean>
}

export declare const get: (path: string, ...headers: string[]) => string
export declare const post: (path: string, body: string | Buffer, ...headers: string[]) => Buffer
export declare function chunked(body: Buffer, size: number): Buffer
