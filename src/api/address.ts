/** Socket addresses: of an interface, or `unix:PATH`. */

export const isUnix = (address: string): boolean => address.startsWith('unix:')

/** The file of a Unix socket; `unix:///run/a` is `unix:/run/a`. */
export const unixPath = (address: string): string => address.replace(/^unix:(\/\/(?=\/))?/, '')
