"""The JSON API: what the commands do, over HTTP, on the client that they are built on.

    request ──▶ route ──▶ who may (`answer`) ──▶ what is asked (`asking`) ──▶ a call of the client

An operation is a row of data (`operation`, `table`): routes, the OpenAPI document, the reference
and the tables of tests are made of it. `routes` of `vigil/web/api/routes.py` is for the app.
"""
