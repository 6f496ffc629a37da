/** Addresses of sockets: of an interface, or `unix:PATH`. */

/** Whether an address is a Unix socket. */
export const isUnix = (address: string): boolean => address.startsWith('unix:')

/** The file of a Unix socket; `unix:///run/a` is `unix:/run/a`. */
export const unixPath = (address: string): string => address.replace(/^unix:(\/\/(?=\/))?/, '')
