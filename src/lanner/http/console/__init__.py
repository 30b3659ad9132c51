"""The web console: pages that the HTTP process renders for people, with the rights of the user that logged on.

`routes` joins the pages. Each page module asks the queue manager through `lanner.client`, brings the answer
into words (`words`), and renders a template. Templates escape everything; the policy in `page` allows no
inline script and no inline style.
"""
