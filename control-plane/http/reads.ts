import type { FastifyRequest } from 'fastify';

/** A route that changes nothing though it is a POST, for what it is asked about may not stand in a URL, says so. */
declare module 'fastify' {
  interface FastifyContextConfig {
    reads?: true;
  }
}

export const onlyReads = { reads: true } as const;

/** Tells whether a call is of an operation that changes something. */
export const isChange = ({
  method,
  routeOptions,
}: Pick<FastifyRequest, 'method' | 'routeOptions'>): boolean =>
  method === 'POST' && !routeOptions.config.reads;
