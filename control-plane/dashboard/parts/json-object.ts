import { Failure } from '../api/client.ts';

/** Reads a JSON object that a person entered. Throws a Failure that names the field. */
export function parseObject(name: string, text: string): object {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch (error) {
    throw new Failure('BAD_REQUEST', `${name}: ${(error as Error).message}`);
  }
  throw new Failure('BAD_REQUEST', `${name}: must be a JSON object, such as {"plan": "pro"}`);
}
