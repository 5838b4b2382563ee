/** A mark that some editors put before a text. RFC 8259 forbids it before JSON, and no body may begin with it. */
export const BYTE_ORDER_MARK = '\ufeff';
/** The error about a body that does. */
export const MARKED = 'body: is not JSON; leave out the byte-order mark at its beginning';
