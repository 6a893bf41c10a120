"""Where the supervisors of a run meet before torch exists: a hub, its members, their messages.

Each node (or each process of a launcher) has one supervisor. The first one runs the hub; all of them,
the first too, are its members over TCP. Messages are length-limited JSON with an HMAC and a sequence
number (`codec`); nothing is unpickled, and nothing but whole messages of a known member reaches the
caller. Standard library only, one loop without threads, so that whatever a member does (dies, stops,
floods, lies) the hub goes on.
"""
