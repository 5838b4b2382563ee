/**
 * Returns the message of an error with advice where the id of a key was sent in place of an API's, or the reverse. It
 * looks only at the message, so that what does not exist and what the caller may not see are told alike.
 */
export function advised(message: string): string {
  if (/^api key_\w+ not found$/.test(message))
    return `${message}; this is the id of a key: send the id of its API`;
  if (/^key (?!key_)\S+ not found$/.test(message))
    return `${message}; ids of keys begin with key_, as createKey returned them`;
  return message;
}
